"""Lower fractional max pooling; the random samples are an input of the op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten


def _window_starts(sample: Tensor, size: Any, count: int, width: int) -> Tensor:
    """Return the window starts along one axis, evenly spaced with a shift.

    The last ends at the end.
    """
    last = size - width
    if count == 1:
        return torch.zeros_like(sample, dtype=torch.int64).unsqueeze(-1) + last
    step = last / (count - 1)
    shifted = (torch.arange(count) + sample.unsqueeze(-1)) * step
    starts = shifted.to(torch.int64) - (sample * step).to(torch.int64).unsqueeze(-1)
    return torch.where(torch.arange(count) == count - 1, last, starts)


def _pool(
    x: Tensor, kernel: Sequence[int], output: Sequence[int], samples: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the maximum and its index for each window, with one sample tensor per axis."""
    rank = len(output)
    lead, sizes = x.shape[: x.dim() - rank], x.shape[x.dim() - rank :]
    index: Any = 0
    for axis, (size, count, width) in enumerate(zip(sizes, output, kernel, strict=True)):
        starts = _window_starts(samples[axis].reshape(lead), size, count, width)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = count, width
        positions = starts.unsqueeze(-1) + torch.arange(width)
        index = index * size + positions.reshape(*lead, *shape)
    index = index.reshape(*lead, math.prod(output), math.prod(kernel))
    windows = x.flatten(-rank).gather(-1, index.flatten(-2)).reshape(index.shape)
    values, best = windows.max(-1, keepdim=True)
    indices = index.gather(-1, best)
    return values.reshape(*lead, *output), indices.reshape(*lead, *output)


_SAMPLES = {"fixed": True, "low": 0.0, "high": 0.99}


@decomposes(
    aten.fractional_max_pool2d.default,
    cases=[
        case(f32(2, 3, 7, 8, fixed=True), [2, 3], [3, 4], f32(2, 3, 2, **_SAMPLES)),
        case(f32(3, 5, 5, fixed=True), [2, 2], [1, 4], f32(1, 3, 2, **_SAMPLES)),
    ],
)
def fractional_max_pool2d(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    # torch draws the sample of the width first
    width_samples, height_samples = random_samples.unbind(-1)
    return _pool(x, kernel_size, output_size, [height_samples, width_samples])


@decomposes(
    aten.fractional_max_pool3d.default,
    cases=[
        case(f32(2, 3, 5, 6, 7, fixed=True), [2, 3, 2], [2, 3, 4], f32(2, 3, 3, **_SAMPLES)),
    ],
)
def fractional_max_pool3d(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    return _pool(x, kernel_size, output_size, random_samples.unbind(-1))
