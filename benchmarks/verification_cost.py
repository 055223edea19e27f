"""Measure what verification adds to a conversion; write the section of docs/benchmarks.md.

    python -W ignore -m benchmarks.verification --baseline ../before

Each model is measured in a separate process, several times; the best processor seconds count.
`--baseline` is a checkout of an earlier commit, whose `verify` is measured on smaller models.
Arguments select models by parts of their names; the others keep their figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.provenance import current, describe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
KEPT = Path(__file__).with_name("verification.json")
CHILD = Path(__file__).parent / "child" / "verification_cost.py"
HEADING = "## Cost of verification"
MODELS = (
    "LR-ASPP 520",
    "SegFormer-B0 512",
    "BERT 6 layers",
    "BERT 12 layers",
    "ViT-B 224",
    "YOLO11n 640",
)
SMALL = ("SegFormer-B0 128", "BERT 2 layers of 128", "YOLO11n 128")
MINUTES = 20

INTRODUCTION = """Written by `python -m benchmarks.verification_cost`. Seconds are processor seconds
of all processes, the best of several runs. The models have random weights. *In torch* is export,
decomposition and one eager call together. `convert` verifies as it does by default; the target is
at most 4 times as long.
"""
THOROUGH = """`verify(model, program, args)` with all inputs, without a time limit, and at an
earlier commit; the target is at most a third.
"""


def measured(model: str, package: Path = ROOT) -> dict[str, Any]:
    """Return the figures of one process with the package of a checkout."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", CHILD, model],
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        env={**os.environ, "PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1"},
        cwd=CHILD.parent,  # in the project's folder its package would be imported
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def best(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the least processor seconds of each part."""
    parts = runs[0]["seconds"]
    return {part: min(run["seconds"][part]["processor"] for run in runs) for part in parts}


def row(name: str, figures: dict[str, Any]) -> list[str]:
    """Return the cells of a model."""
    seconds = figures["seconds"]
    if name in SMALL:
        before, now = figures["before"]["verify"], seconds["verify"]
        return [name, f"{before:.1f}", f"{now:.1f}", f"{now / before:.2f}"]
    parts = [seconds[part] for part in ("export", "decompose", "eager")]
    return [
        name,
        *(f"{part:.2f}" for part in parts),
        f"{seconds['convert']:.2f}",
        f"{seconds['convert'] / sum(parts):.1f}",
    ]


def _table(header: list[str], figures: dict[str, Any]) -> str:
    lines = [header, ["---"] * len(header), *(row(n, f) for n, f in figures.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def section(figures: dict[str, dict[str, Any]]) -> str:
    """Return the section of the page."""
    commits: dict[str, list[str]] = {}
    for name, found in figures.items():
        commits.setdefault(describe(found["measured"]), []).append(name)
    said = "\n\n".join(f"{text[:-1]}: {', '.join(names)}.\n" for text, names in commits.items())
    real = {n: figures[n] for n in MODELS if n in figures}
    small = {n: figures[n] for n in SMALL if n in figures}
    then = ", ".join(dict.fromkeys(f"`{f['baseline']}`" for f in small.values()))
    header = ["model", "export", "decompose", "eager", "convert", "convert / in torch"]
    parts = [HEADING + "\n", INTRODUCTION, said, _table(header, real)]
    if small:
        header = ["model", f"at commit {then}, s", "now, s", "now / then"]
        parts += [THOROUGH, _table(header, small)]
    return "\n".join(parts)


def stored_section() -> str:
    """Return the section with the stored figures, or nothing."""
    return section(json.loads(KEPT.read_text())) if KEPT.exists() else ""


def write() -> None:
    """Replace the section in the page, which is before that on single ops."""
    text = PAGE.read_text()
    start = text.find(HEADING)
    after = text.find("\n## ", max(start, 0) + 1) + 1 if start >= 0 else text.find("## Single ops")
    before = text[: start if start >= 0 else after]
    PAGE.write_text(before + stored_section() + "\n" + text[after:])


def main() -> None:
    """Measure models and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="parts of the names of models")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="a checkout of an earlier commit")
    parser.add_argument("--page-only", action="store_true", help="write the page again")
    given = parser.parse_args()
    figures = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wanted = [n for n in (*MODELS, *SMALL) if any(part in n for part in given.models or [""])]
    for name in [] if given.page_only else wanted:
        before = {k: figures.get(name, {}).get(k) for k in ("before", "baseline")}
        if name in SMALL and given.baseline is not None:
            command = ["git", "-C", given.baseline, "rev-parse", "--short", "HEAD"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            before["before"] = best([measured(name, given.baseline.absolute())])
            before["baseline"] = done.stdout.strip()
        if name in SMALL and before["before"] is None:
            print(f"{name}: pass --baseline")
            continue
        runs = [measured(name) for _ in range(1 if name in SMALL else given.repeats)]
        figures[name] = {"seconds": best(runs), "measured": current("transformers")}
        figures[name] |= before if name in SMALL else {}
        print(" ".join(row(name, figures[name])), flush=True)
        figures = {n: figures[n] for n in (*MODELS, *SMALL) if n in figures}
        KEPT.write_text(json.dumps(figures, indent=1) + "\n")
    write()


if __name__ == "__main__":
    main()
