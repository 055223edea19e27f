"""Pooling and interpolation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from ..asset.reading import Op
from . import carriers
from .registry import Flag, Floats, Ints, Result, Tensor, plans


def _windows(
    x: Tensor, kernel: list[int], stride: list[int], dilation: list[int], fill: float | None
) -> Tensor:
    """Return all windows as a view, window axes last; `fill` pads windows beyond the end."""
    spatial = len(kernel)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = x.shape[-spatial:]
    if fill is not None:
        more = [-(-(n - r) // s) * s + r - n for n, r, s in zip(sizes, reach, stride, strict=True)]
        x = functional.pad(x, [side for m in reversed(more) for side in (0, m)], value=fill)
        sizes = x.shape[-spatial:]
    counts = [(n - r) // s + 1 for n, r, s in zip(sizes, reach, stride, strict=True)]
    steps = x.stride()[-spatial:]
    return x.as_strided(
        (*x.shape[:-spatial], *counts, *kernel),
        (
            *x.stride()[:-spatial],
            *(a * b for a, b in zip(steps, stride, strict=True)),
            *(a * b for a, b in zip(steps, dilation, strict=True)),
        ),
    )


@plans("max_pool_2d", "max_pool_3d")
def _max_pool(op: Op) -> Callable[..., Result]:
    native = functional.max_pool2d if op.name.endswith("2d") else functional.max_pool3d
    dtype = op.types[0].dtype

    def integers(x: Tensor, kernel: Ints, stride: Ints, dilation: Ints, ceil: Flag) -> Tensor:
        wide = x.long()
        fill = torch.iinfo(torch.int64).min if ceil else None
        own = tuple(range(-len(kernel), 0))
        return _windows(wide, kernel, stride, dilation, fill).amax(own).to(dtype)

    def floats(x: Tensor, kernel: Ints, stride: Ints, dilation: Ints, ceil: Flag) -> Tensor:
        if dtype in carriers.FLOAT8:
            return native(x.float(), kernel, stride, 0, dilation, ceil).to(dtype)
        return native(x, kernel, stride, 0, dilation, ceil)

    return integers if carriers.is_integer(dtype) else floats


@plans("sum_pool_2d", "sum_pool_3d")
def _sum_pool(op: Op) -> Callable[..., Result]:
    native = functional.avg_pool2d if op.name.endswith("2d") else functional.avg_pool3d
    dtype = op.types[0].dtype
    plain = dtype.is_floating_point and dtype not in carriers.FLOAT8

    def sum_pool(x: Tensor, kernel: Ints, stride: Ints, dilation: Ints) -> Tensor:
        if plain and set(dilation) == {1}:  # torch has no 3-d kernel for float16 on a CPU
            wide = x.float() if dtype in carriers.NARROW_FLOATS else x
            return native(wide, kernel, stride, divisor_override=1).to(dtype)
        own = tuple(range(-len(kernel), 0))
        if carriers.is_integer(dtype):
            return _windows(x.long(), kernel, stride, dilation, None).sum(own).to(dtype)
        wide = x.float() if dtype in carriers.FLOAT8 else x
        summed = _windows(wide, kernel, stride, dilation, None).sum(own)
        return carriers.to_float8(summed, dtype) if dtype in carriers.FLOAT8 else summed

    return sum_pool


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype not in (torch.float64, torch.int64) else x.double()


def _narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    return carriers.to_float8(x, dtype) if dtype in carriers.FLOAT8 else x.to(dtype)


@plans("interpolate")
def _interpolate(op: Op) -> Callable[..., Result]:
    is_linear = op.attributes["interpolation_mode"] == "linear"
    dtype = op.types[0].dtype

    def interpolate(x: Tensor, shape: Ints, scale: Floats, offset: Floats) -> Tensor:
        made = _wide(x)
        for axis, (size, by, shift) in enumerate(zip(shape, scale, offset, strict=True)):
            numbers = torch.arange(size, dtype=torch.float32, device=x.device)
            at = ((numbers + 0.5 - shift) / by - 0.5).clamp(0, x.shape[axis] - 1)
            made = _sampled(made, axis, at, is_linear)
        return _narrowed(made, dtype)

    return interpolate


def _sampled(x: Tensor, axis: int, at: Tensor, is_linear: bool) -> Tensor:
    """Sample along one axis: linearly between neighbors, or the nearest."""
    if not is_linear:
        return x.index_select(axis, at.round().long())
    low = at.floor()
    if bool((low == at).all()):
        return x if at.shape[0] == x.shape[axis] else x.index_select(axis, low.long())
    high = (low + 1).clamp(max=x.shape[axis] - 1)
    share = (at - low).reshape([-1 if i == axis else 1 for i in range(x.dim())])
    below, above = x.index_select(axis, low.long()), x.index_select(axis, high.long())
    return below + (above - below) * share


@plans("interpolate_coordinates")
def _interpolate_coordinates(op: Op) -> Callable[..., Result]:
    is_linear = op.attributes["interpolation_mode"] == "linear"
    dtype = op.types[0].dtype

    def sample(x: Tensor, coords: Tensor) -> Tensor:
        field = _wide(x)
        last = torch.tensor(x.shape, dtype=torch.float32, device=x.device) - 1
        at = torch.minimum(coords.clamp(min=0), last)
        if not is_linear:
            return _narrowed(field[tuple(at.round().long().T)], dtype)
        low = at.floor()
        share = at - low
        made = torch.zeros(at.shape[0], dtype=field.dtype, device=x.device)
        for corner in range(2 ** x.dim()):
            up = torch.tensor([bool(corner >> k & 1) for k in range(x.dim())], device=x.device)
            weight = torch.where(up, share, 1 - share).prod(1)
            place = torch.minimum(low + up, last).long()
            made = made + weight * field[tuple(place.T)]
        return _narrowed(made, dtype)

    return sample
