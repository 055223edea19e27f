"""`coreai-torch swift`: write the ports of a model as a Swift file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Json, answer

HELP = """Write a Swift file with the entry points, ports, states and labels of an asset.

\b
  coreai-torch swift net.aimodel
  coreai-torch swift net.aimodel -o Net.swift --name Classifier

Without -o the source goes to standard output.
"""


def swift(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The Swift file to write.")
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the Swift type.")] = "",
    as_json: Json = False,
) -> None:
    """Write the source."""
    from ..swift import swift_source

    source = swift_source(asset, name or None)
    if output is None:
        answer({"source": source}, source.rstrip("\n"), as_json=as_json, ok=True)
    output.write_text(source)
    line = f"{output}: {source.count(chr(10))} lines"
    answer({"output": output}, line, as_json=as_json, ok=True)
