"""`coreai-torch compress`: compress the weights of a model and convert it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from .console import (
    Checkpoint,
    DType,
    Inputs,
    Json,
    Source,
    answer,
    check_asset_path,
    counted,
    size,
)

HELP = """Compress the weights of a model without data, convert it, check the numbers and save.

\b
  coreai-torch compress models.py:net -i "x=f32[1,64]" --scheme int8 -o net.aimodel
  coreai-torch compress models.py:net -i "x=f32[1,64]" --scheme int4 --block-size 32 -o net.aimodel
  coreai-torch compress models.py:net -i "x=f32[1,64]" --scheme palettize4 --skip head -o n.aimodel

Schemes: int8, int4, uint4, fp8, fp4, palettize4, sparse50, sparse50+palettize4, or the same with
other bit widths and percentages. The table shows the size and the error of each weight. The numbers
of the asset are compared with those of the compressed model.
"""


def compress(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .aimodel to write.")],
    scheme: Annotated[str, typer.Option(help="How to compress: int8, int4, palettize4, ...")],
    inputs: Inputs = None,
    checkpoint: Checkpoint = None,
    dtype: DType = "",
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Inputs of one output that share a scale.")
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="A layer or weight to leave unchanged: layers.0 or *.head; repeatable."),
    ] = None,
    least: Annotated[
        int, typer.Option(min=0, help="Leave weights with fewer elements unchanged.")
    ] = 1024,
    verify: Annotated[bool, typer.Option(help="Compare the program with PyTorch.")] = True,
    as_json: Json = False,
) -> None:
    """Compress, convert and save."""
    from .. import compress as compress_model
    from .. import convert as convert_model
    from ..compression.scheme_names import KNOWN, scheme_named
    from ..converter import TorchConverter
    from ..report import summarize
    from .model_source import load

    check_asset_path(output)
    if scheme_named(scheme) is None:
        raise typer.BadParameter(f"unknown scheme {scheme!r}; the schemes are {KNOWN}")
    if source.endswith(".pt2"):
        raise typer.BadParameter("compress needs the model: an exported program cannot be changed")
    loaded = load(source, inputs or (), checkpoint=checkpoint, dtype=dtype)
    report = compress_model(
        loaded.model_or_exported, scheme, block_size=block_size, skip=skip or (), least=least
    )
    convert_model(
        loaded.model_or_exported,
        loaded.args,
        loaded.kwargs,
        dynamic_shapes=loaded.dynamic_shapes,
        verify=verify,
        output=output,
        converter=TorchConverter().register_custom_kernels(loaded.kernels),
    )
    file_bytes = summarize(output).file_bytes or 0
    data = {
        "output": output,
        "bytes": file_bytes,
        "weights": [dataclasses.asdict(row) for row in report.rows],
        "weight_bytes_before": report.bytes_before,
        "weight_bytes": report.bytes,
        "verified": verify,
    }
    many = counted(len(report.compressed), "compressed weight")
    line = f"{output}: {many}, {size(report.bytes_before)} became {size(report.bytes)}"
    answer(data, [str(report).rstrip(), line], as_json=as_json, ok=True)
