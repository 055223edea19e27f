"""`coreai-torch split`: convert a model into a chain of assets."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import (
    Checkpoint,
    DType,
    Force,
    Inputs,
    Json,
    Source,
    Target,
    Verify,
    answer,
    size,
    table,
)
from .conversion_options import Calibration, HalfPorts, Keep, Precision, half_options
from .ports import BoolPorts, Images, Labels, Outputs, port_options

HELP = """Convert a model into a chain of assets that run one after the other.

\b
  coreai-torch split models.py:net -i "x=f32[1,3,224,224]" --parts 2 -o net-parts
  coreai-torch split model.pt2 --max-bytes 900MB -o model-parts
  coreai-torch run net-parts x=photo.png -o scores.npz

The cuts divide the weights equally, where few tensors cross. The folder gets the assets and
manifest.json, with the ports and the order of the parts.
"""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20}
_UNITS["GIB"] = 2**30


def split(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    parts: Annotated[int | None, typer.Option(help="The number of parts.")] = None,
    max_bytes: Annotated[
        str, typer.Option(help="The most bytes of weights in a part: 900MB.")
    ] = "",
    inputs: Inputs = None,
    checkpoint: Checkpoint = None,
    dtype: DType = "",
    output_names: Annotated[
        str, typer.Option(help="Names of the outputs, separated by commas.")
    ] = "",
    precision: Precision = "",
    keep: Keep = None,
    calibration: Calibration = None,
    half_ports: HalfPorts = False,
    target: Target = "",
    outputs: Outputs = "",
    image: Images = None,
    bool_ports: BoolPorts = "bool",
    labels: Labels = None,
    verify: Annotated[
        Verify, typer.Option(help="Compare each part with PyTorch: quick, full or none.")
    ] = Verify.QUICK,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Split and save."""
    from .. import split as split_model
    from .model_source import load

    if (parts is None) == (not max_bytes):
        raise typer.BadParameter("pass either --parts or --max-bytes")
    if Path(source).suffix == ".aimodel":
        raise typer.BadParameter(
            "an asset cannot be split; pass the exported program (.pt2) or file.py:factory"
        )
    limit = _bytes(max_bytes) if max_bytes else None
    loaded = load(source, inputs or (), checkpoint=checkpoint, dtype=dtype)
    manifest = split_model(
        loaded.model_or_exported,
        output=output,
        overwrite=force,
        parts=parts,
        max_bytes=limit,
        output_names=[n.strip() for n in output_names.split(",")] if output_names else None,
        target=target or None,
        **half_options(precision, keep, calibration, half_ports),
        **port_options(outputs, image, bool_ports, labels),
        verify=False if verify is Verify.NONE else str(verify),
        **loaded.arguments(),
    )
    data: dict[str, Any] = {"output": output, **dataclasses.asdict(manifest)}
    rows = [
        (part.file, size(part.weight_bytes), f"{_names(part.inputs)} -> {_names(part.outputs)}")
        for part in manifest.parts
    ]
    answer(data, [f"{output}:", *table(rows)], as_json=as_json, ok=True)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise typer.BadParameter(f"{text!r} is not a size; try  --max-bytes 900MB")
    return int(float(found[1]) * _UNITS[found[2].upper()])
