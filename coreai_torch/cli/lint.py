"""`coreai-torch lint`: list what is known to fail on devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Inputs, Json, answer, counted

if TYPE_CHECKING:
    from ..targets.lint import Finding

HELP = """List constructs that are known to fail, to give wrong numbers or to be slow on devices.

\b
  coreai-torch lint net.aimodel
  coreai-torch lint net.aimodel --target neural_engine --os 27.0
  coreai-torch lint models.py:net --input "x=f32[1,3,224,224]" --json

The rules come from public reports, which each finding names; this project did not run them on a
device. Exits with code 1 if there is an error; with --strict also if there is a warning.
"""


def lint(
    model: Annotated[
        str,
        typer.Argument(
            help="An .aimodel, an exported program (.pt2), or file.py:factory.", show_default=False
        ),
    ],
    inputs: Inputs = None,
    target: Annotated[
        str,
        typer.Option(help="Compute units, separated by commas: gpu, neural_engine, cpu; or any."),
    ] = "",
    os: Annotated[str | None, typer.Option(help="A version of the operating system: 27.0.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
    as_json: Json = False,
) -> None:
    """Search a program."""
    from ..targets.lint import UNITS
    from ..targets.lint import lint as find

    targets = [unit.strip() for unit in target.split(",")] if target else UNITS
    found = find(program_of(model, inputs or ()), target=targets, os=os)
    fatal = ("error", "warning") if strict else ("error",)
    data = {"findings": [dataclasses.asdict(finding) for finding in found]}
    ok = all(finding.severity not in fatal for finding in found)
    answer(data, _describe(model, found), as_json=as_json, ok=ok)


def program_of(model: str, inputs: Any) -> Any:
    """Return the path of an asset, or the converted program of a model."""
    if Path(model).suffix == ".aimodel":
        return Path(model)
    from .. import convert
    from .model_source import load

    loaded = load(model, inputs)
    return convert(
        loaded.model_or_exported,
        verify=False,
        **loaded.arguments(),
    )


def _describe(model: str, found: list[Finding]) -> Iterator[str]:
    if not found:
        yield f"{model}: no known hazards"
        return
    yield f"{model}: {counted(len(found), 'finding')}"
    for finding in found:
        times = "once" if finding.count == 1 else f"{finding.count} times"
        yield f"\n{finding.severity}: {finding.problem}, {times}"
        yield f"  at    {finding.place}"
        yield f"  on    {', '.join(finding.units)}"
        yield f"  try   {finding.hint}"
        if finding.rewrite:
            yield f"  or    convert with --target, which rewrites it: {finding.rewrite}"
        yield f"  from  {finding.source}"
        yield f"  code  {finding.code}"
