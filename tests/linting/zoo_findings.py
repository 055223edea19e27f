# ruff: noqa: T201  a command prints
"""`python -m tests.linting.zoo_findings [names]`: lint the models of the zoo.

Prints the rules that each model breaks, with the number of places and the first ones. `--record`
writes them to zoo_findings.json, which a test compares with. `--all` lints fast models first; with
`--lines FILE` a second run continues the first.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests import forked

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "models")]
STORED = Path(__file__).parent / "zoo_findings.json"
RECORDED = (
    *("lstm", "qwen2", "mamba", "distilbert", "t5", "dinov2", "yolos", "segformer", "wav2vec2"),
    *("clip", "timm_mobilenetv3_small_050", "torchvision_squeezenet1_1"),
    *("diffusers_autoencoder_tiny", "float16 distilbert", "float16 t5", "float16 segformer"),
)


_PLACES = 4
Found = dict[str, tuple[int, list[str]]]  # the number of places and the first ones, by rule


def findings(job: str) -> Found:
    """Return what breaks each rule; a job is `lstm` or `float16 lstm`."""
    import torch
    import zoo
    from zoo import judge

    dtype, _, name = job.rpartition(" ")
    row = zoo.ROWS[name]
    element = getattr(torch, dtype or row.dtype)
    torch.manual_seed(0)
    model = row.build().eval().to(element)
    inputs = judge._make_inputs(row.inputs, element)
    if row.asset is not None:  # the library of the model exports it at the first call
        with torch.no_grad():
            model(*inputs.values())
    verdict = judge.Verdict(name)
    program = judge._converted(row, model, inputs, verdict, judge._Stages(verdict))
    return _places(program)


def _places(program: Any) -> Found:
    from coreai_torch.asset.metadata import SIZES, annotation
    from coreai_torch.asset.reading import read
    from coreai_torch.targets.lint import RULES
    from coreai_torch.targets.lint.findings import _READ
    from coreai_torch.targets.lint.view import ProgramView

    view = ProgramView(read(program, largest=_READ), annotation(program, SIZES))
    hits = {rule.code: list(rule.search(view)) for rule in RULES}
    first = {c: [f"{what}, {place}" for what, place in h[:_PLACES]] for c, h in hits.items()}
    return {code: (len(hits[code]), first[code]) for code in hits if hits[code]}


def counts(found: Found) -> dict[str, int]:
    """Return the number of places by rule."""
    return {code: count for code, (count, _) in sorted(found.items())}


def attempt(job: str) -> Found | str:
    """Return the findings, or the first line of the error."""
    try:
        return findings(job)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def main() -> None:
    options = _options()
    jobs = _all_jobs() if options.all else options.jobs or list(RECORDED)
    forked.preload("transformers.modeling_utils", "coreai_torch.targets.lint")
    found = _read_lines(options.lines)
    left = [job for job in jobs if not isinstance(found.get(job), dict)]
    until = time.monotonic() + options.seconds
    ended = forked.run(attempt, left, options.workers, patience=options.patience, until=until)
    for job, result, failure in ended:
        found[job] = failure or result
        line = json.dumps({job: found[job]})
        print(line, flush=True)
        if options.lines:
            with options.lines.open("a") as file:
                file.write(f"{line}\n")
    if options.record:
        linted = {job: counts(one) for job, one in found.items() if isinstance(one, dict)}
        stored = json.loads(STORED.read_text()) | linted
        STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n")


def _read_lines(file: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            found.update(json.loads(line))
    return found


def _all_jobs() -> list[str]:
    """Return all models that convert, those of `HALF_PRECISION` in float16 too, fast ones first."""
    import zoo

    verdicts = json.loads((STORED.parents[1] / "models" / "verdicts.json").read_text())["models"]
    names = [name for name, row in zoo.ROWS.items() if not row.refused]
    jobs = [*names, *(f"float16 {name}" for name in zoo.HALF_PRECISION)]
    return sorted(jobs, key=lambda job: verdicts.get(job.split()[-1], {}).get("cpu", 0.0))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", help="models, or `float16 NAME`; default: RECORDED")
    parser.add_argument("--all", action="store_true", help="all models, and some in float16")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lines", type=Path, help="lines of JSON; models in it are not run again")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for one model")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no model after this time")
    parser.add_argument("--record", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
