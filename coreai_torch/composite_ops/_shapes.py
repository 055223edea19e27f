"""Shape and dtype checks of the composite ops.

Only static sizes are checked. Comparing a symbolic size would specialize it during export, and the
op that needs the sizes to agree records a guard anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INDICES = (torch.int32, torch.int64, torch.int16, torch.uint8, torch.uint16)


def require_dtype(op: str, allowed: Sequence[torch.dtype], **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype not in allowed:
            names = ", ".join(str(dtype) for dtype in allowed)
            raise ValueError(f"{op}: {name} is {tensor.dtype}, allowed are {names}")


def bind_axes(op: str, name: str, tensor: Tensor, axes: str, sizes: dict[str, int]) -> None:
    """Add the sizes of `tensor` to `sizes` under the names in `axes`; raise if a name differs."""
    names = axes.split()
    shape = tensor.shape
    if len(shape) != len(names):
        raise ValueError(f"{op}: {name} is {shape_text(shape)}, expected [{', '.join(names)}]")
    for axis, size in zip(names, shape, strict=True):
        known = sizes.setdefault(axis, size)
        if differ(size, known):
            layout = f"{shape_text(shape)} as [{', '.join(names)}]"
            raise ValueError(f"{op}: {name} is {layout}, but {axis} is {known}")


def require_expandable(op: str, name: str, shape: Sequence[int], target: Sequence[int]) -> None:
    """Raise unless `shape` broadcasts to `target`."""
    fits = len(shape) <= len(target) and not any(
        differ(size, wanted) and differ(size, 1)
        for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
    if not fits:
        raise ValueError(
            f"{op}: {name} is {shape_text(shape)}, which does not expand to {shape_text(target)}"
        )


def require_multiple(op: str, multiple: str, divisor: str, sizes: dict[str, int]) -> None:
    size, unit = sizes[multiple], sizes[divisor]
    if isinstance(size, int) and isinstance(unit, int) and (unit == 0 or size % unit):
        raise ValueError(f"{op}: {multiple} is {size}, not a multiple of {divisor} = {unit}")


def is_size(size: int, number: int) -> bool:
    """Return whether `size` is statically equal to `number`."""
    return isinstance(size, int) and size == number


def differ(size: int, other: int) -> bool:
    """Return whether two sizes are static and different."""
    return isinstance(size, int) and isinstance(other, int) and size != other


def shape_text(shape: Sequence[int]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"
