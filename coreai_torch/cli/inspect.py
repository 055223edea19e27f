"""`coreai-torch inspect`: show the contents of an asset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Json, answer, counted, size, table

if TYPE_CHECKING:
    from ..report import Summary

HELP = """Show the contents of an asset: functions, ports, states, composites, weights, ops.

\b
  coreai-torch inspect net.aimodel
  coreai-torch inspect net.aimodel --json | jq .weights
"""


def inspect(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Print a summary."""
    from ..report import summarize

    contents = summarize(asset)
    answer(dataclasses.asdict(contents), _describe(asset, contents), as_json=as_json, ok=True)


def _describe(asset: Path, contents: Summary) -> Iterator[str]:
    yield f"{asset}: {size(contents.file_bytes or 0)}, {size(contents.weight_bytes)} of constants"
    for function in contents.functions:
        yield f"\nfunction {function.name}, {counted(function.ops, 'op')}"
        for what in ("inputs", "outputs", "states"):
            yield from (f"  {what[:-1]:<7} {port}" for port in getattr(function, what))
    if contents.composites:
        yield "\ncomposites"
        yield from table([(count, name) for name, count in contents.composites.items()])
    if contents.kernels:
        yield "\nMetal kernels"
        yield from (f"  {name}" for name in contents.kernels)
    yield "\nconstants"
    yield from table([(d, count, size(b)) for d, (count, b) in contents.weights.items()])
    yield "\nops"
    ops = [(count, name.removeprefix("coreai.")) for name, count in contents.ops.items()]
    yield from table(ops)
