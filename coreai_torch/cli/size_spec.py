"""Read `--size`: `1,3,64,64` or `x=1,3,64,64`, inputs separated by `;`, a name before `:`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer


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
