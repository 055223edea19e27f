"""Decompose `grid_sampler` and `affine_grid_generator`."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten

_INF, _NAN = float("inf"), float("nan")
_GRAIN = 2048.0
_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _in_places(grid: Tensor, size: int, align: bool) -> Tensor:
    """Map coordinates from -1 ... 1 to positions that start at 0.

    Torch's kernel computes `(grid + 1) * (size / 2) - 0.5` with one rounding (fused multiply-add).
    Rounded twice, positions in 640 pixels are off by 3e-5. The product with the first 12 bits of a
    coordinate is exact, and the rest is small.
    """
    if align:
        return (grid + 1) / 2 * (size - 1)
    moved, half = grid + 1, size / 2
    coarse = torch.floor(moved * _GRAIN) / _GRAIN
    return (coarse * half - 0.5) + (moved - coarse) * half


def _reflected(at: Tensor, size: int, align: bool) -> Tensor:
    """Reflect positions at the borders: at pixel centers (`align`) or pixel edges."""
    low, span = (0.0, 2 * size - 2) if align else (-0.5, 2 * size)  # one period
    if align and size == 1:
        return torch.zeros_like(at)
    away = (at - low).abs()
    rest = away - torch.trunc(away / span) * span
    return torch.minimum(rest, span - rest) + low


def _bounded(at: Tensor, size: int, padding: int, align: bool) -> Tensor:
    """Move positions onto the axis unless the padding mode is zeros; NaN becomes 0."""
    if padding == _ZEROS:
        return at
    if padding == _REFLECTION:
        at = _reflected(at, size, align)
    return torch.where(at.isnan(), 0.0, at).clamp(min=0).clamp(max=size - 1)


# A mask of the positions inside an axis, or None if all are; and their indices.
Place = tuple[Tensor | None, Tensor]


class Source:
    """A batch of images or volumes, read at integer positions."""

    def __init__(self, input: Tensor) -> None:
        self.extents = input.shape[2:]
        self._values = input.permute([0, *range(2, input.dim()), 1])

    def along(self, at: Tensor, axis: int, *, bounded: bool = False) -> Place:
        """Return the places of positions (floats) along an axis; `bounded` ones are inside."""
        extent = self.extents[axis]
        inside = None if bounded else (at >= 0) & (at < extent)
        return inside, at.long().clamp(0, extent - 1)

    def read(self, places: Sequence[Place], picture: Tensor | None = None) -> Tensor:
        """Return the channels at `places`, one `Place` per axis; zero outside.

        `picture` is the image index of each position; by default it is the index along the first
        axis.
        """
        if picture is None:
            picture = torch.arange(self._values.shape[0], device=self._values.device)
            picture = picture.reshape(-1, *[1] * (places[0][1].dim() - 1))
        values = self._values[(picture, *(at for _, at in places))]
        masks = [inside for inside, _ in places if inside is not None]
        if not masks:
            return values
        return torch.where(functools.reduce(operator.and_, masks).unsqueeze(-1), values, 0.0)


def linear(source: Source, at: Sequence[Tensor], picture: Tensor | None = None) -> Tensor:
    """Interpolate linearly between the corners around each position."""
    low = [torch.floor(a) for a in at]
    ends = [[source.along(b + step, i) for step in (0, 1)] for i, b in enumerate(low)]
    total: Tensor | None = None
    for corner in itertools.product((0, 1), repeat=len(at)):
        weight = torch.ones_like(at[0])
        for a, base, step in zip(at, low, corner, strict=True):
            weight = weight * (a - base if step else base + 1 - a)
        places = [end[step] for end, step in zip(ends, corner, strict=True)]
        part = source.read(places, picture) * weight.unsqueeze(-1)
        total = part if total is None else total + part
    assert total is not None  # a grid has at least one corner
    return total


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Return the weights of Keys' cubic (a = -0.75) for the four nearest positions."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(source: Source, at: Sequence[Tensor], padding: int, align: bool) -> Tensor:
    y, x = at
    top, left = torch.floor(y), torch.floor(x)

    def places(start: Tensor, axis: int) -> list[Place]:
        extent = source.extents[axis]
        wanted = [_bounded(start + i - 1, extent, padding, align) for i in range(4)]
        return [source.along(w, axis, bounded=padding != _ZEROS) for w in wanted]

    total: Tensor | None = None
    columns, across = places(left, 1), _cubic_weights(x - left)
    for row, down in zip(places(top, 0), _cubic_weights(y - top), strict=True):
        parts = [
            source.read([row, column]) * weight.unsqueeze(-1)
            for column, weight in zip(columns, across, strict=True)
        ]
        line = (parts[0] + parts[1] + parts[2] + parts[3]) * down.unsqueeze(-1)
        total = line if total is None else total + line
    assert total is not None  # four rows
    return total


def _sample(input: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    wide = torch.float32 if input.dtype in (torch.float16, torch.bfloat16) else input.dtype
    source, grid = Source(input.to(wide)), grid.to(wide)
    if padding == _BORDER and mode != _BICUBIC:
        grid = grid.clamp(-1, 1)  # an infinity would become NaN, and that position 0
    named = [grid[..., i] for i in reversed(range(grid.shape[-1]))]  # x comes first in a grid
    at = [_in_places(g, e, align_corners) for g, e in zip(named, source.extents, strict=True)]
    if mode == _BICUBIC:
        found = _cubic(source, at, padding, align_corners)
    else:
        at = [
            _bounded(a, e, padding, align_corners) for a, e in zip(at, source.extents, strict=True)
        ]
        inside = padding != _ZEROS
        nearest = [source.along(torch.round(a), i, bounded=inside) for i, a in enumerate(at)]
        found = linear(source, at) if mode == _BILINEAR else source.read(nearest)
    return found.movedim(-1, 1).to(input.dtype)


_PLANE, _GRID = f32(2, 3, 5, 4), f32(2, 3, 6, 2, low=-1.6, high=1.6)
_WILD = f32(1, 3, 4, 2, values=(_NAN, 0.5, _INF, -0.2, 1e20, -_INF, -1.0, 1.0, 3.0, -1e9, 0.0))


@decomposes(
    aten.grid_sampler_2d.default,
    cases=[
        *(
            case(_PLANE, _GRID, mode, padding, align)
            for mode in (_BILINEAR, _NEAREST, _BICUBIC)
            for padding in (_ZEROS, _BORDER, _REFLECTION)
            for align in (False, True)
        ),
        case(f32(1, 2, 1, 3), f32(1, 2, 2, 2), _BILINEAR, _REFLECTION, True),
        case(f32(1, 1, 2, 640), f32(1, 1, 500, 2, low=-1, high=1), _BILINEAR, _BORDER, False),
        case(f32(1, 2, 4, 4), _WILD, _BILINEAR, _ZEROS, False),
        case(f32(1, 2, 4, 4), _WILD, _BILINEAR, _BORDER, False),
        case(f32(1, 2, 4, 4), _WILD, _NEAREST, _BORDER, True),
        case(f32(1, 2, 2, 2), _WILD, _BICUBIC, _ZEROS, False),
        case(f32(2, 17, 5, 4), _GRID, _BICUBIC, _ZEROS, False),
        case(f32(2, 17, 5, 4), _GRID, _BILINEAR, _BORDER, True),
        case(f32(2, 17, 3, 2), _GRID, _NEAREST, _REFLECTION, True),
    ],
)
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    return _sample(input, grid, interpolation_mode, padding_mode, align_corners)


@decomposes(
    aten.grid_sampler_3d.default,
    cases=[
        case(f32(2, 3, 4, 5, 3), f32(2, 2, 3, 2, 3, low=-1.6, high=1.6), mode, padding, align)
        for mode, padding, align in (
            (_BILINEAR, _ZEROS, False),
            (_BILINEAR, _BORDER, True),
            (_BILINEAR, _REFLECTION, False),
            (_NEAREST, _REFLECTION, True),
            (_NEAREST, _ZEROS, False),
        )
    ],
)
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    return _sample(input, grid, interpolation_mode, padding_mode, align_corners)


def _steps(count: int, like: Tensor, align: bool) -> Tensor:
    """Return coordinates from -1 to 1: pixel centers (`align`) or pixel edges on the borders."""
    numbers = torch.arange(count, device=like.device).to(like.dtype)
    if align:
        return numbers * 0 if count == 1 else numbers * 2 / (count - 1) - 1
    return (numbers * 2 + 1) / count - 1


@decomposes(
    aten.affine_grid_generator.default,
    cases=[
        case(f32(2, 2, 3), [2, 3, 4, 5], True),
        case(f32(2, 2, 3), [2, 3, 4, 5], False),
        case(f32(2, 3, 4), [2, 3, 1, 4, 2], True),
        case(f32(2, 3, 4), [2, 3, 3, 4, 1], False),
    ],
)
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Use `arange`: torch's decomposition uses `linspace`, which makes a dynamic size static."""
    batch, _, *extents = size
    axes = [_steps(extent, theta, align_corners) for extent in extents]
    result = theta[:, :, -1].reshape(batch, *[1] * len(extents), -1)
    for column, (place, steps) in enumerate(reversed([*enumerate(axes)])):
        along = [1] * (len(extents) + 2)
        along[place + 1] = -1
        slope = theta[:, :, column].reshape(batch, *[1] * len(extents), -1)
        result = result + steps.reshape(along) * slope
    return result
