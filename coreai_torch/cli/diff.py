"""`coreai-torch diff`: compare two assets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Json, answer

if TYPE_CHECKING:
    from ..report import Difference

HELP = """Compare two assets: functions, ports, ops, weights. Exit with code 1 if they differ.

\b
  coreai-torch diff before.aimodel after.aimodel

Locations, metadata and names of values are ignored.
"""
_SHOWN = 60  # lines of one difference


def diff(
    first: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    second: Annotated[Path, typer.Argument(help="Another .aimodel.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Compare two assets."""
    from ..report import differences

    found = differences(first, second)
    data = {"differences": [dataclasses.asdict(d) for d in found]}
    if not found:
        answer(data, "no differences: both have the same ops and weights", as_json=as_json, ok=True)
    answer(data, _describe(found), as_json=as_json, ok=False)


def _describe(found: list[Difference]) -> Iterator[str]:
    for difference in found:
        where = (
            f"{difference.what} of {difference.function}" if difference.function else "functions"
        )
        lines = difference.description.splitlines()
        yield f"{where}:"
        yield from (f"  {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN} more lines"
