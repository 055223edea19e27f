"""`coreai-torch ops`: list the supported ops, or run their test cases."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from .console import Json, answer, counted, table

HELP = """List the ops that can be converted; with --check, run their test cases.

\b
  coreai-torch ops
  coreai-torch ops pool
  coreai-torch ops softmax --check

Ops that torch decomposes into these convert too. --check exits with code 1 if a case fails; without
a name it runs all cases, which takes many minutes.
"""


def ops(
    pattern: Annotated[str, typer.Argument(help="Part of an op's name.")] = "",
    check: Annotated[bool, typer.Option("--check", help="Run the cases on this machine.")] = False,
    as_json: Json = False,
) -> None:
    """List the ops, or check them."""
    if check:
        _check(pattern, as_json)
    from ..supported_ops import supported

    found = [op for op in supported() if pattern.replace("::", ".") in op.name]
    lines = [
        counted(len(found), "op"),
        *table([(op.name, op.how, " ".join(op.dtypes), _sizes(op.dynamic)) for op in found]),
    ]
    if not found:
        lines.append("  torch may decompose it into other ops: run coreai-torch check on a model")
    data = {"ops": [dataclasses.asdict(op) for op in found]}
    answer(data, lines, as_json=as_json, ok=bool(found) or not pattern)


def _sizes(dynamic: bool) -> str:
    return "dynamic sizes" if dynamic else "static sizes"


def _check(pattern: str, as_json: bool) -> None:
    from ..progress import progress
    from ..verification.self_check import case_runs, check_ops

    runs = case_runs(pattern)
    if not pattern and not as_json:
        count = counted(len({run.op for run in runs}), "op")
        typer.echo(
            f"{len(runs):,} runs of {count}; pass part of a name to run fewer, as in\n"
            "  coreai-torch ops softmax --check",
            err=True,
        )
    results = []
    with progress(f"checking {pattern}".strip(), len(runs)) as advance:
        for result in check_ops(pattern):
            results.append(result)
            advance()
    failed = [r for r in results if not r.ok]
    lines = [f"{len(results) - len(failed)} of {len(results)} runs agree with torch"]
    for result in failed:
        when = "after" if result.optimized else "before"
        lines.append(f"  {result.op}, case {result.case}, {when} optimize(): {result.problem}")
    data = {"runs": len(results), "failed": [dataclasses.asdict(r) for r in failed]}
    answer(data, lines, as_json=as_json, ok=bool(results) and not failed)
