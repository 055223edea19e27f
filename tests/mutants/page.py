"""The score of the judge by kind of sabotage, stored as JSON and shown in docs/verify.md."""

from __future__ import annotations

import json
import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
SCORE, HONEST_SCORE = HERE / "score.json", HERE / "honest.json"
DOCS = HERE.parents[1] / "docs" / "verify.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
BAD = ("missed", "false alarm", "crashed", "broken")
LEAST = 0.995


def summary(
    rows: Sequence[dict[str, Any]], honest: bool, versions: dict[str, str]
) -> dict[str, Any]:
    """Return the totals of a run."""
    return _honest(rows, versions) if honest else _mutants(rows, versions)


def measured(commit: str = "") -> dict[str, str]:
    """Return the commit and the versions of this run."""
    import sys

    sys.path.insert(0, str(HERE.parent))
    import provenance

    try:
        found = provenance.current()
    except Exception:  # not a checkout
        found = {"torch": torch.__version__, "python": platform.python_version()}
    return {**found, "commit": commit} if commit else found


def _mutants(rows: Sequence[dict[str, Any]], versions: dict[str, str]) -> dict[str, Any]:
    from .judging import ENGINE
    from .kinds import KINDS

    by_kind: dict[str, dict[str, Counter[str]]] = {
        name: {"small": Counter(), "whole": Counter()} for name in KINDS
    }
    units: Counter[str] = Counter()
    for row in rows:
        if row["kind"] == "none":
            units[row["outcome"]] += 1
        else:
            size = "whole" if row["unit"].startswith("model ") else "small"
            by_kind[row["kind"]][size][row["outcome"]] += 1
    ops = {r["op"] for r in rows if r["outcome"] in ("caught", "missed")}
    models = {r["unit"].split("/")[0][6:] for r in rows if r["unit"].startswith("model ")}
    bad = [r for r in rows if r["outcome"] in BAD]
    return {
        "measured": versions,
        "engine": ENGINE,
        "ops": len(ops),
        "models": sorted(models),
        "programs": dict(units),
        "kinds": {k: {s: dict(c) for s, c in sizes.items()} for k, sizes in by_kind.items()},
        "quick": _on_given_inputs(rows, versions),
        "bad": [
            {k: r[k] for k in ("unit", "op", "node", "depth", "kind", "outcome", "detail")}
            for r in bad
        ],
    }


def _on_given_inputs(rows: Sequence[dict[str, Any]], versions: dict[str, str]) -> dict[str, Any]:
    """Return how many mutants the given inputs alone find: the least that the quick check runs."""
    matter = [r for r in rows if r["kind"] != "none" and r["outcome"] in ("caught", "missed")]
    found = [r["detail"] for r in matter if r["outcome"] == "caught"]
    caught = sum(detail == "given" or detail.startswith("raised") for detail in found)
    return {
        "measured": versions,
        "matter": len(matter),
        "caught": caught,
        "caught later": len(found) - caught,
    }


def _honest(rows: Sequence[dict[str, Any]], versions: dict[str, str]) -> dict[str, Any]:
    by_dtype: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_dtype[row["kind"]][row["outcome"]] += 1
    bad = [r for r in rows if r["outcome"] not in ("accepted", "skipped")]
    return {
        "measured": versions,
        "dtypes": {dtype: dict(counts) for dtype, counts in by_dtype.items()},
        "bad": [{k: r[k] for k in ("unit", "outcome", "detail")} for r in bad],
    }


def totals(found: dict[str, Any]) -> Counter[str]:
    """Return the outcomes of all mutants."""
    total: Counter[str] = Counter()
    for sizes in found["kinds"].values():
        for counts in sizes.values():
            total.update(counts)
    return total


def share(found: dict[str, Any]) -> float:
    """Return the share of mutants that matter and were caught."""
    total = totals(found)
    matter = total["caught"] + total["missed"]
    return total["caught"] / matter if matter else 0.0


def is_good(found: dict[str, Any]) -> bool:
    """Return whether enough mutants were caught, or no honest model was rejected."""
    if "kinds" in found:
        return share(found) >= LEAST and not found["programs"].get("false alarm")
    return not any(r["outcome"] == "false alarm" for r in found["bad"])


def text(found: dict[str, Any]) -> str:
    """Return a summary for a terminal."""
    if "kinds" not in found:
        return json.dumps(found["dtypes"], indent=1)
    total = totals(found)
    lines = [f"{name}: {sizes}" for name, sizes in found["kinds"].items()]
    return "\n".join(
        [
            *lines,
            f"programs: {found['programs']}",
            f"total: {dict(total)}",
            f"caught {100 * share(found):.2f} % of those that matter",
            f"on the given inputs alone: {found['quick']}",
        ]
    )


def record(found: dict[str, Any], honest: bool) -> None:
    """Store the score and write it into the page."""
    path = HONEST_SCORE if honest else SCORE
    path.write_text(json.dumps(found, indent=1) + "\n")
    write()


def write() -> None:
    """Write the table into docs/verify.md from the stored scores."""
    page = DOCS.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n\n{section()}\n\n{END}{after}")


def section() -> str:
    """Return the section of the page."""
    from .kinds import KINDS

    found = json.loads(SCORE.read_text())
    run, every = found["units"]["run"], found["units"]["all"]
    part = "" if run == every else f"This is a sample: {run} of {every} programs. "
    lines = [
        f"{part}{found['ops']} ops were sabotaged in turn, in the programs of their test cases and "
        f"at different depths of whole models ({', '.join(found['models'])}). A "
        "mutant matters if the change exceeds 16 times the noise of its dtype, measured against "
        f"float64. Engine of the comparison: {found['engine']}. Measured at commit "
        f"{_measured(found)}.",
        "",
        "| sabotage | small programs: caught | missed | whole models: caught | missed | harmless |",
        "|---|---|---|---|---|---|",
    ]
    for name, sizes in found["kinds"].items():
        small, whole = Counter(sizes["small"]), Counter(sizes["whole"])
        lines.append(
            f"| {KINDS[name].description} | {small['caught']} | {small['missed']} | "
            f"{whole['caught']} | {whole['missed']} | {small['harmless'] + whole['harmless']} |"
        )
    total = totals(found)
    lines += [
        "",
        f"Caught: {total['caught']} of {total['caught'] + total['missed']} that matter "
        f"({100 * share(found):.2f} %). Unmutated programs of these runs: "
        f"{found['programs'].get('accepted', 0)} accepted, "
        f"{found['programs'].get('false alarm', 0)} false alarms.",
    ]
    if "quick" in found:
        lines += ["", _quick_line(found["quick"])]
    if HONEST_SCORE.exists():
        lines += ["", *_honest_lines(json.loads(HONEST_SCORE.read_text()))]
    return "\n".join(lines)


def _quick_line(quick: dict[str, Any]) -> str:
    """Return the score of the quick check, between its least and its most inputs."""
    caught, matter = quick["caught"], quick["matter"]
    run, every = quick["units"]["run"], quick["units"]["all"]
    part = f"{run} programs" if run == every else f"a sample of {run} of {every} programs"
    most = caught + quick["caught later"]
    return (
        "The quick check runs at least the given inputs, and the others as far as five seconds "
        f"suffice. Of {matter} mutants that matter, in {part}, the given "
        f"inputs find {caught} ({100 * caught / matter:.2f} %), and with the others {most} "
        f"({100 * most / matter:.2f} %) are found. Measured at commit "
        f"{_measured(quick)}."
    )


def _measured(found: dict[str, Any]) -> str:
    """Return the commit, and what was measured again at another one."""
    measured = found["measured"]
    where = f"{measured.get('commit', 'unknown')}, torch {measured.get('torch')}"
    return f"{where}; {measured['again']}" if "again" in measured else where


def _honest_lines(found: dict[str, Any]) -> list[str]:
    rows = [
        f"| {dtype} | {c.get('accepted', 0)} | {c.get('false alarm', 0)} | "
        f"{c.get('skipped', 0)} | {c.get('broken', 0) + c.get('crashed', 0)} |"
        for dtype, c in found["dtypes"].items()
    ]
    run, every = found["units"]["run"], found["units"]["all"]
    part = "" if run == every else f", a sample of {run} of {every}"
    return [
        f"Unmutated models of the zoo{part} (skipped: the library is not installed, or eager torch "
        "fails in this dtype or returns NaN only; not judged: it cannot be exported or converted "
        f"in this dtype). Measured at commit {_measured(found)}:",
        "",
        "| dtype | accepted | false alarms | skipped | not judged |",
        "|---|---|---|---|---|",
        *rows,
    ]
