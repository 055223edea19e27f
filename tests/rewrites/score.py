"""The stored score of the sweep with all rewrites, and its part of docs/targets.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from . import units

STORED = Path(__file__).parent / "score.json"
_UNRELATED = "fails without rewrites"
_COLUMNS = ("passed", "failed", "unrelated", "refused")
_KINDS = {
    "static": "op cases with static sizes",
    "dynamic": "op cases with dynamic sizes",
    "model": "models of the zoo",
}


def record(results: Path) -> None:
    """Write score.json and docs/targets.md from lines of JSON; other kinds keep their figures."""
    from tests.docs import targets_page

    from .sweep import read

    rows = read(results)
    known = {kind: _names(kind) for kind in {row["kind"] for row in rows}}
    for row in rows:  # without cases that exist no more
        row["verdicts"] = {n: v for n, v in row["verdicts"].items() if n in known[row["kind"]]}
        row["failures"] = {n: f for n, f in row["failures"].items() if n in known[row["kind"]]}
    score = merged(json.loads(STORED.read_text()), _score(rows))
    score["known"] |= {kind: len(names) for kind, names in known.items()}
    STORED.write_text(json.dumps(score, indent=1) + "\n")
    targets_page.PAGE.write_text(targets_page.page())


def _names(kind: str) -> set[str]:
    """Return the names of all cases or models of a kind."""
    found = units.all_units((kind,))
    return {name for unit in found for name in [m[0] for m in unit.members] or [unit.name]}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new score, with the old figures of the kinds that were not judged."""
    kept = [kind for kind in _KINDS if not new["verdicts"][kind]]
    failures = {n: m for n, m in old["failures"].items() if n.partition(" ")[0] in kept}
    return {
        "runs": [run for run in old["runs"] if run["kind"] in kept] + new["runs"],
        **{
            key: {kind: (old if kind in kept else new)[key][kind] for kind in _KINDS}
            for key in ("verdicts", "places")
        },
        "failures": {**failures, **new["failures"]},
        "known": old.get("known", {}),
    }


def _score(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts by kind, the places by rewrite, the failures and where they come from."""
    verdicts = {kind: Counter() for kind in _KINDS}
    places = {kind: Counter() for kind in _KINDS}
    runs: dict[str, dict[str, Any]] = {}
    for row in rows:
        verdicts[row["kind"]].update(_verdict(row, name) for name in row["verdicts"])
        places[row["kind"]].update(row["rewrites"])
        text = json.dumps([row["kind"], row["measured"]], sort_keys=True)
        new = {"kind": row["kind"], "measured": row["measured"], "count": 0}
        run = runs.setdefault(text, new)
        run["count"] += len(row["verdicts"])
    return {
        "runs": sorted(runs.values(), key=lambda run: -run["count"]),
        "verdicts": {kind: dict(sorted(c.items())) for kind, c in verdicts.items()},
        "places": {kind: dict(sorted(c.items())) for kind, c in places.items()},
        "failures": {
            f"{row['kind']} {name}": message.splitlines()[0]
            for row in rows
            for name, message in sorted(row["failures"].items())
        },
    }


def _verdict(row: dict[str, Any], name: str) -> str:
    """Return the verdict; `unrelated` if it fails without rewrites too."""
    unrelated = row["failures"].get(name, "").startswith(_UNRELATED)
    return "unrelated" if unrelated else row["verdicts"][name]


def lines() -> list[str]:
    """Return the section of the page."""
    import provenance

    stored = json.loads(STORED.read_text())
    result = ["| judged with all rewrites | pass | fail | fail without too | refused | places |"]
    result.append("|---|---|---|---|---|---|")
    for kind, title in _KINDS.items():
        count, places = stored["verdicts"][kind], sum(stored["places"][kind].values())
        cells = [str(count.get(v, 0)) if count else "not run" for v in _COLUMNS]
        known, judged = stored.get("known", {}).get(kind, 0), sum(count.values())
        title = f"{title}, {judged} of {known} judged" if judged < known else title
        result.append(f"| {title} | {' | '.join(cells)} | {places} |")
    result.append("")
    failed = {n: m for n, m in stored["failures"].items() if not m.startswith(_UNRELATED)}
    result += [f"- {name}: {message}" for name, message in failed.items()] + [""] * bool(failed)
    counts: Counter[str] = Counter()
    for run in stored["runs"]:
        counts[provenance.describe(run["measured"])] += run["count"]
    for sentence, count in counts.items():
        result += [f"{sentence[:-1]}: {count} of these.", ""]
    return result[:-1]


def places(code: str) -> int:
    """Return at how many places a rewrite was applied."""
    stored = json.loads(STORED.read_text())["places"].values()
    return sum(count.get(code, 0) for count in stored)
