"""Judge the models at their published sizes: `python tests/models/published_sizes.py [names]`.

Without names, those without a verdict are judged; with `--all`, all. The verdicts are stored with
the commit and the versions that they were measured with, and `page.py` prints them.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zoo
from zoo.child import judged

KEPT = Path(__file__).parent / "published_sizes.json"
PATIENCE = 1_800  # seconds that a model may wait for a processor on a busy machine


def load() -> dict[str, Any]:
    """Return the stored verdicts by model, and the commit and versions of each run."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {"runs": [], "models": {}}


def verdict_on(name: str) -> Any:
    """Return the verdict on one model, from a child process with limits of time and memory."""
    return judged(name, patience=PATIENCE, work="judge_within_limits")


def _store(verdicts: dict[str, Any], runs: list[dict[str, str]]) -> None:
    ordered = {name: verdicts[name] for name in zoo.PUBLISHED_SIZES if name in verdicts}
    used = {verdict["commit"] for verdict in ordered.values()}
    by_commit = {run["commit"]: run for run in runs if run["commit"] in used}
    stored = {"runs": list(by_commit.values()), "models": ordered}
    KEPT.write_text(json.dumps(stored, indent=1, allow_nan=False) + "\n")


def collect(files: list[Path]) -> None:
    """Store the models that pass in lines of `published_sweep.py`, later lines last.

    A model whose last line fails loses its verdict, so that it counts as not judged.
    """
    import page
    from zoo.judge import Verdict

    kept = load()
    runs = list(kept["runs"])
    for line in itertools.chain.from_iterable(map(read_lines, files)):
        name, result = line["name"], line["verdict"]
        if result["failure"]:
            sys.stdout.write(f"{name} fails: {result['failure'].splitlines()[0][:160]}\n")
            kept["models"].pop(name, None)
            continue
        verdict = Verdict(**{**result, "error": result["error"] or 0.0})
        kept["models"][name] = {**page.summary(verdict), "commit": line["run"]["commit"]}
        runs.append(line["run"])
    _store(kept["models"], runs)
    page.main([])


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines that have a verdict, without those that a killed process cut off."""
    for text in file.read_text().splitlines() if file.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if "verdict" in line:
            yield line


def main(arguments: list[str]) -> None:
    import page  # page imports this module

    kept = load()
    missing = [name for name in zoo.PUBLISHED_SIZES if name not in kept["models"]]
    names = list(zoo.PUBLISHED_SIZES) if arguments == ["--all"] else arguments or missing
    this = page.versions()
    for name in names:
        kept["models"][name] = {**page.summary(verdict_on(name)), "commit": this["commit"]}
        sys.stdout.write(f"{name}: {kept['models'][name]['failure'] or 'passes'}\n")
        sys.stdout.flush()
        _store(kept["models"], [*kept["runs"], this])
    page.main([])


if __name__ == "__main__":
    main(sys.argv[1:])
