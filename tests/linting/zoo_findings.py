# ruff: noqa: T201  a command prints
"""`python -m tests.linting.zoo_findings [names]`: lint the models of the zoo.

Prints the rules that each model breaks, with the number of places and the first. `--record` writes
them for the models of `RECORDED` to zoo_findings.json, which a test compares with.
"""

from __future__ import annotations

import argparse
import json
import sys
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


def findings(job: str) -> dict[str, tuple[int, str]]:
    """Return the number of places and the first by rule; a job is `lstm` or `float16 lstm`."""
    import torch
    import zoo
    from zoo import judge

    from coreai_torch.linting import lint

    dtype, _, name = job.rpartition(" ")
    row = zoo.ROWS[name]
    element = getattr(torch, dtype or row.dtype)
    torch.manual_seed(0)
    model = row.build().eval().to(element)
    inputs = judge._make_inputs(row.inputs, element)
    verdict = judge.Verdict(name)
    program = judge._converted(row, model, inputs, verdict, judge._Stages(verdict))
    return {f.code: (f.count, f.place) for f in lint(program)}


def counts(found: dict[str, tuple[int, str]]) -> dict[str, int]:
    """Return the number of places by rule."""
    return {code: count for code, (count, _) in sorted(found.items())}


def attempt(job: str) -> dict[str, tuple[int, str]] | str:
    """Return the findings, or the first line of the error."""
    try:
        return findings(job)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def main() -> None:
    options = _options()
    jobs = _all_jobs() if options.all else options.jobs or list(RECORDED)
    forked.preload("transformers.modeling_utils", "coreai_torch.linting")
    found: dict[str, Any] = {}
    for job, result, failure in forked.run(attempt, jobs, options.workers):
        found[job] = failure or result
        print(json.dumps({job: found[job]}), flush=True)
    if options.record:
        STORED.write_text(json.dumps({job: counts(found[job]) for job in jobs}, indent=1) + "\n")


def _all_jobs() -> list[str]:
    import zoo

    half = [f"float16 {name}" for name in zoo.HALF_PRECISION]
    return [*half, *(name for name, row in zoo.ROWS.items() if not row.refused)]


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", help="models, or `float16 NAME`; default: RECORDED")
    parser.add_argument("--all", action="store_true", help="all models, and some in float16")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
