"""Refuses shapes and dtypes no op could mean, by what is known before the program runs.

Only sizes that are plain integers are judged. A symbolic size passes: comparing it would pin it
during export, and the op that needs the agreement records it as a guard anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INDICES = (torch.int32, torch.int64)


def require_dtype(op: str, allowed: Sequence[torch.dtype], **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype not in allowed:
            names = ", ".join(str(dtype) for dtype in allowed)
            raise ValueError(f"{op}: {name} is {tensor.dtype}, allowed are {names}")


def bind_axes(op: str, name: str, tensor: Tensor, axes: str, sizes: dict[str, int]) -> None:
    """Reads `tensor`'s sizes into `sizes` under the names in `axes`; a name has one size."""
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
    """Every size, counted from the last, must be the target's or 1."""
    fits = len(shape) <= len(target) and not any(
        differ(size, wanted) and differ(size, 1)
        for size, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
    if not fits:
        raise ValueError(
            f"{op}: {name} is {shape_text(shape)}, which does not expand to {shape_text(target)}"
        )


def require_multiple(op: str, whole: str, part: str, sizes: dict[str, int]) -> None:
    have, unit = sizes[whole], sizes[part]
    if isinstance(have, int) and isinstance(unit, int) and (unit == 0 or have % unit):
        raise ValueError(f"{op}: {whole} is {have}, which is no multiple of {part} = {unit}")


def is_size(size: int, number: int) -> bool:
    """Whether `size` is known to be `number`; a symbolic size is not."""
    return isinstance(size, int) and size == number


def differ(size: int, other: int) -> bool:
    """Whether two sizes are known to differ."""
    return isinstance(size, int) and isinstance(other, int) and size != other


def shape_text(shape: Sequence[int]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"
