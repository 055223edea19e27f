"""Options of `convert` and `split`: half precision, sizes, externalized classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .model_source import module_at

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


def parse_sizes(given: Sequence[str]) -> Any:
    """Return the argument `sizes` of `convert`; None without options."""
    if not given:
        return None
    pairs = [_parse(text) for text in given]
    named = [name for name, _ in pairs if name]
    if not named:
        return [shapes for _, shapes in pairs]
    if len(set(named)) != len(pairs):
        raise typer.BadParameter("give each --size a different name, or none of them")
    return dict(pairs)


def _parse(text: str) -> tuple[str, Any]:
    """Return the name, and the shapes by input, or the shape of the only input."""
    name, found, rest = text.rpartition(":")
    shapes: dict[str, tuple[int, ...]] = {}
    for part in rest.split(";"):
        port, _, sizes = part.rpartition("=")
        try:
            shapes[port.strip()] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not a size; try  --size x=1,3,224,224 or --size small:x=1,3,224,224"
            ) from None
    if found and not name:
        raise typer.BadParameter(f"{text!r} has an empty name before ':'")
    return name.strip(), shapes[""] if list(shapes) == [""] else shapes


_SPEC = re.compile(
    r"(?P<module>[^=]+):(?P<cls>\w+)(?:=(?P<composite>[\w.]+)(?:\((?P<attrs>[\w\s,]*)\))?)?"
)
_HELP = "try  models.py:Norm, or models.py:Norm=rms_norm(axes,eps) for a composite op"


def parse_externalized(text: str) -> Any:
    """Return an `ExternalizeSpec` for the class, with the composite if one is named."""
    found = _SPEC.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} does not name a class; {_HELP}")
    module = module_at(found["module"])
    cls = getattr(module, found["cls"], None)
    if cls is None:
        names = [n for n, v in vars(module).items() if isinstance(v, type)]
        raise typer.BadParameter(f"{found['module']} has no {found['cls']!r}; it has {names}")
    from ..passes.externalize.spec import ExternalizeSpec

    attrs = [name.strip() for name in (found["attrs"] or "").split(",") if name.strip()]
    return ExternalizeSpec(cls, found["composite"], attrs or None)
