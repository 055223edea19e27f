"""Options about half precision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Precision = Annotated[
    str, typer.Option(help="float16 or bfloat16: compute in half precision where it holds.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="What stays in float32: a module path with *, an op; can be repeated."),
]
Calibration = Annotated[
    list[Path] | None,
    typer.Option(help="An .npz with typical inputs by name, for --precision; can be repeated."),
]
HalfPorts = Annotated[
    bool, typer.Option("--half-ports", help="Make inputs and outputs half precision too.")
]


def half_options(
    precision: str, keep: Sequence[str] | None, calibration: Sequence[Path] | None, half_ports: bool
) -> dict[str, Any]:
    """Return the arguments of `convert` for these options."""
    from .tensors import read

    return {
        "precision": precision or None,
        "keep": keep or "auto",
        "calibration": [read(file) for file in calibration] if calibration else None,
        "half_ports": half_ports,
    }
