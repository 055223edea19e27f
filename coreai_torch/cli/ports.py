"""Options about inputs and outputs: images, labels, other outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

Outputs = Annotated[
    str, typer.Option(help="FX nodes or module paths to return, separated by commas.")
]
Images = Annotated[
    list[str] | None,
    typer.Option(
        help='An input of uint8 pixels: "x color=BGR mean=0.5,0.5,0.5 std=0.2"; can be repeated.'
    ),
]
BoolPorts = Annotated[
    str, typer.Option(help="The dtype of bool inputs and outputs: bool, int8, ...")
]
Labels = Annotated[
    Path | None,
    typer.Option(help="Class labels: a line each, or JSON with a list or a list for each output."),
]


class Randomness(StrEnum):
    """Where the program takes its random numbers from."""

    INPUT = "input"
    SEED = "seed"


class Assume(StrEnum):
    """What decides branches and sizes that depend on values."""

    EXAMPLE = "example"


Random = Annotated[
    Randomness | None,
    typer.Option(help="Turn random numbers into inputs, or compute them of the input `seed`."),
]


def port_options(
    outputs: str, images: Sequence[str] | None, bool_ports: str, labels: Path | None
) -> dict[str, Any]:
    """Return the arguments of `convert` for these options."""
    return {
        "outputs": [name.strip() for name in outputs.split(",")] if outputs else None,
        "images": dict(_image(text) for text in images or ()),
        "bool_ports": bool_ports,
        "labels": None if labels is None else _labels(labels),
    }


def _image(text: str) -> tuple[str, Any]:
    from ..ports import ImageInput

    if not text.strip():
        raise typer.BadParameter('an image needs the name of an input; try  --image "x color=BGR"')
    name, *settings = text.split()
    given: dict[str, Any] = {}
    for setting in settings:
        key, found, value = setting.partition("=")
        if not found or key not in ImageInput.__dataclass_fields__:
            known = ", ".join(ImageInput.__dataclass_fields__)
            raise typer.BadParameter(
                f"{setting!r} is not a setting of an image; there are {known}; "
                'try  --image "x color=BGR scale=1/255"'
            )
        given[key] = value if key in ("layout", "color", "model_color") else _numbers(value)
    return name, ImageInput(**given)


def _numbers(text: str) -> Any:
    try:
        found = [_number(part) for part in text.split(",")]
    except (ValueError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text!r} is not a number, or numbers with commas") from error
    return found if len(found) > 1 else found[0]


def _number(text: str) -> float:
    """Return a number or a quotient: `1/255`."""
    number, _, divisor = text.partition("/")
    return float(number) / float(divisor or 1)


def _labels(file: Path) -> Any:
    if not file.is_file():
        raise typer.BadParameter(
            f"the file {str(file)!r} does not exist; try  --labels FILE, with one label per line"
        )
    text = file.read_text()
    if file.suffix != ".json":
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}") from error
