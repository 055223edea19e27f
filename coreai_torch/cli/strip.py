"""`coreai-torch strip`: remove debug info from an asset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Force, Json, answer, check_asset_path, size

HELP = """Remove debug info from an asset: file names, source lines, module paths.

\b
  coreai-torch strip net.aimodel                 (in place)
  coreai-torch strip net.aimodel -o small.aimodel

Ops and weights do not change.
"""


def strip(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .aimodel to write.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Remove debug info."""
    from ..asset.program import stripped

    before = _bytes(asset)
    target = output or asset
    check_asset_path(target, force)
    stripped(asset, target, overwrite=force)
    after = _bytes(target)
    data = {"output": target, "bytes_before": before, "bytes_after": after}
    answer(data, f"{target}: {size(before)} became {size(after)}", as_json=as_json, ok=True)


def _bytes(asset: Path) -> int:
    return sum(file.stat().st_size for file in asset.rglob("*") if file.is_file())
