"""`coreai-torch compress`: compress the weights of a model and convert it."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import (
    Checkpoint,
    DType,
    Force,
    Inputs,
    Json,
    Source,
    answer,
    check_asset_path,
    counted,
    size,
)

if TYPE_CHECKING:
    from ..compression import CompressionReport
    from .model_source import Loaded

HELP = """Compress the weights of a model, convert it, check the numbers and save.

\b
  coreai-torch compress models.py:net -i "x=f32[1,64]" --scheme int8 -o net.aimodel
  coreai-torch compress models.py:net -i "x=f32[1,64]" --scheme int4/32 --skip head -o net.aimodel
  coreai-torch compress models.py:net --scheme "layers.*.mlp=int4" --scheme head=int8 -o n.aimodel
  coreai-torch compress models.py:net --config recipe.yaml -o net.aimodel
  coreai-torch compress models.py:net --scheme int4 --method gptq --calibration d.npz -o n.aimodel
  coreai-torch compress models.py:net --target-bytes 20MB --calibration data.npz -o net.aimodel
  coreai-torch compress models.py:net --max-error 0.01 --sensitivity table.json -o net.aimodel

Schemes: int8, int4, uint4, fp8, fp4, palettize4, sparse50, sparse2:4, sparse50+int8, or the same
with other bit widths and percentages; int4/32 has blocks of 32. The table shows the size and the
error of each weight. The numbers of the asset are compared with those of the compressed model.
The calibration file has an array per input, with one sample per entry of the first axis.
"""
_TRIES = 3  # of smaller targets, if the asset is larger than estimated
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Method(StrEnum):
    """How weights are rounded with calibration data."""

    GPTQ = "gptq"
    AWQ = "awq"


class Activations(StrEnum):
    """The dtype of the inputs of compressed layers."""

    INT8 = "int8"


def parse_bytes(text: str) -> int:
    """Return a number of bytes: 500000, 20MB or 1.5GB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMG]?)i?B?", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size; try  --target-bytes 20MB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


@dataclass(frozen=True)
class _Call:
    """The options of the command that concern the compression."""

    source: str
    load: Mapping[str, Any]
    schemes: Sequence[str]
    config: Path | None
    arguments: Mapping[str, Any]
    calibration: Path | None
    target: int | None
    max_error: float | None
    table: Path | None

    @property
    def has_goal(self) -> bool:
        return self.target is not None or self.max_error is not None

    def scheme(self) -> Any:
        """Return the scheme, the scheme of each pattern, the candidates, or the YAML file."""
        from ..compression.specs import to_spec
        from ..errors import ConversionError

        patterns = {}
        for text in self.schemes:
            pattern, equals, name = text.rpartition("=")
            try:
                to_spec(name)
            except ConversionError as error:
                raise typer.BadParameter(str(error).partition("\n  code")[0]) from error
            patterns[pattern if equals else "*"] = name
        if self.config is not None:
            return self._only_config()
        if self.has_goal:
            if any("=" in text for text in self.schemes):
                raise typer.BadParameter(
                    "with a target, schemes are candidates for all layers; try  --scheme int8 "
                    "--scheme int4/32"
                )
            return list(self.schemes) or None
        if len(patterns) != len(self.schemes):
            raise typer.BadParameter(
                "several schemes need patterns; try  --scheme layers.*=int4 --scheme int8"
            )
        if not patterns and self.arguments["activations"] is None:
            raise typer.BadParameter("no scheme is given; try  --scheme int8")
        default = {"*": patterns.pop("*")} if "*" in patterns else {}
        return patterns | default if patterns else default.get("*")

    def _only_config(self) -> Path | None:
        if self.schemes or self.has_goal:
            raise typer.BadParameter("--config has the schemes; omit --scheme and the target")
        return self.config

    def compress(self, loaded: Loaded, target: int | None, table: Path | None) -> CompressionReport:
        """Compress a model in place."""
        from .. import compress as compress_model
        from .calibration_data import read_samples

        arguments = dict(self.arguments)
        if self.calibration is not None:
            arguments["calibration"] = read_samples(self.calibration, loaded)
        elif self.has_goal:  # the example inputs
            from ..compression.calibration import Sample

            example: Sample = (loaded.args or (), loaded.kwargs or {})
            arguments["calibration"] = [example]
        if self.has_goal:
            goal = {"target_bytes": target, "max_error": self.max_error, "sensitivity": table}
            arguments |= goal
        return compress_model(loaded.model_or_exported, self.scheme(), **arguments)

    def run(self, output: Path, verify: bool, overwrite: bool) -> tuple[CompressionReport, int]:
        """Compress, convert and save; return the report and the bytes of the asset."""
        from ..errors import ConversionError
        from .model_source import load

        with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
            table = self.table or Path(folder, "table.json")
            aim = self.target
            for _ in range(_TRIES):
                loaded = load(self.source, **self.load)
                report = self.compress(loaded, aim, table)
                _convert(loaded, output, verify, overwrite)
                file_bytes = _file_bytes(output)
                if self.target is None or file_bytes <= self.target:
                    return report, file_bytes
                assert aim is not None
                aim -= file_bytes - self.target + 1_000
        raise ConversionError(
            f"the asset takes {file_bytes:,} bytes, more than the target of {self.target:,}\n"
            "  try   pass a larger target"
        )


def _convert(loaded: Loaded, output: Path, verify: bool, overwrite: bool) -> None:
    from .. import convert as convert_model

    convert_model(
        loaded.model_or_exported,
        verify=verify,
        output=output,
        overwrite=overwrite,
        **loaded.arguments(),
    )


def _file_bytes(asset: Path) -> int:
    return sum(file.stat().st_size for file in asset.rglob("*") if file.is_file())


def compress(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .aimodel to write.")],
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            help="How to compress: int8, or layers.*.mlp=int4 for some layers; repeatable. With a "
            "target, a candidate."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file in the form of coreai-opt.")
    ] = None,
    inputs: Inputs = None,
    checkpoint: Checkpoint = None,
    dtype: DType = "",
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Inputs of one output that share a scale.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A layer or weight to compress, with patterns; repeatable."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="A layer or weight to leave unchanged: layers.0 or *.head; repeatable."),
    ] = None,
    least: Annotated[
        int, typer.Option(min=0, help="Leave weights with fewer elements unchanged.")
    ] = 1024,
    method: Annotated[
        Method | None, typer.Option(help="How to round with calibration data.")
    ] = None,
    activations: Annotated[
        Activations | None, typer.Option(help="Round the inputs of compressed layers too.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Inputs of the model: .npz or .safetensors.")
    ] = None,
    target_bytes: Annotated[
        str, typer.Option(help="The maximum size of the asset: 20MB. Picks schemes per layer.")
    ] = "",
    max_error: Annotated[
        float | None,
        typer.Option(min=0, help="The maximum relative error of the outputs. Picks schemes."),
    ] = None,
    sensitivity: Annotated[
        Path | None, typer.Option(help="JSON file of the measured errors, written and reused.")
    ] = None,
    verify: Annotated[bool, typer.Option(help="Compare the program with PyTorch.")] = True,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compress, convert and save."""
    check_asset_path(output, force)
    if source.endswith(".pt2"):
        raise typer.BadParameter("compress needs the model: an exported program cannot be changed")
    target = parse_bytes(target_bytes) if target_bytes else None
    arguments: dict[str, Any] = {"skip": skip or (), "only": tuple(only or ()), "least": least}
    arguments |= {"method": method, "activations": activations, "block_size": block_size}
    call = _Call(
        source,
        {"inputs": inputs or (), "checkpoint": checkpoint, "dtype": dtype},
        scheme or (),
        config,
        arguments,
        calibration,
        target,
        max_error,
        sensitivity,
    )
    call.scheme()
    report, file_bytes = call.run(output, verify, force)
    data = {
        "output": output,
        "bytes": file_bytes,
        "weights": [dataclasses.asdict(row) for row in report.rows],
        "weight_bytes_before": report.bytes_before,
        "weight_bytes": report.bytes,
        "model_error": report.error,
        "verified": verify,
    }
    many = counted(len(report.compressed), "compressed weight")
    line = f"{output}: {many}, {size(report.bytes_before)} became {size(report.bytes)}"
    answer(data, [str(report).rstrip(), line], as_json=as_json, ok=True)
