"""Decompose gradients that models compute at inference: energies, scores, forces.

Those of inputs are forward ops. Gradients of weights are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import case, decomposes
from ...lowering.cases import f16, f32, i64
from ...torch_compat import aten

_SIZES = "the gradient has the sizes of the input"


def _refuse(problem: str) -> NoReturn:
    raise ConversionError(
        f"{problem} is not supported\n  try   write the gradient of the layer in the model, or "
        "register a decomposition of the op"
    )


def _per_axis(given: Sequence[int], count: int) -> list[int]:
    return [*given] * count if len(given) == 1 else [*given]


def _missing(x: Tensor, grad: Tensor, kernel: Sequence[Any], window: Sequence[Any]) -> list[int]:
    """Return how much shorter the transposed convolution of `grad` is than `x` on each axis."""
    strides, paddings, dilations = window
    sizes = zip(x.shape[2:], grad.shape[2:], kernel, strides, paddings, dilations, strict=True)
    return [
        0 if s == 1 else int(extent - ((out - 1) * s - 2 * p + d * (k - 1) + 1))
        for extent, out, k, s, p, d in sizes
    ]


@decomposes(
    aten.convolution_backward.default,
    cases=[
        case(
            f32(1, 3, 4, 4), f32(1, 2, 6, 6), f32(3, 2, 3, 3), [3], [1, 1], [0, 0], [1, 1], False,
            [0, 0], 1, [True, False, False], static_only=_SIZES,
        ),
        case(
            f32(2, 4, 3), f32(2, 2, 8), f32(4, 1, 3), None, [2], [0], [1], False, [0], 2,
            [True, False, False], static_only=_SIZES,
        ),
        case(
            f32(1, 3, 5, 5), f32(1, 2, 3, 3), f32(2, 3, 3, 3), None, [1], [0], [1], True, [0], 1,
            [True, False, False], static_only=_SIZES,
        ),
    ],
)  # fmt: skip
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if output_mask[1]:
        _refuse("the gradient of the weight of a convolution")
    bias = grad.sum([0, *range(2, grad.dim())]) if output_mask[2] else None
    if not output_mask[0]:
        return None, None, bias
    axes = x.dim() - 2
    window = [_per_axis(one, axes) for one in (stride, padding, dilation)]
    if transposed:
        return aten.convolution(grad, weight, None, *window, False, [0], groups), None, bias
    missing = _missing(x, grad, weight.shape[2:], window)
    return aten.convolution(grad, weight, None, *window, True, missing, groups), None, bias


@decomposes(
    aten.avg_pool2d_backward.default,
    cases=[
        case(f32(1, 2, 3, 3), f32(1, 2, 6, 6), [2], [], [0], False, True, None, static_only=_SIZES),
        case(
            f32(1, 2, 2, 3), f32(1, 2, 5, 8), [3, 2], [2, 3], [0], False, False, None,
            static_only=_SIZES,
        ),
        case(
            f32(1, 1, 3, 3), f32(1, 1, 5, 5), [3], [2], [1], False, True, 4, static_only=_SIZES
        ),
    ],
)  # fmt: skip
def avg_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    if x.dim() != 4 or ceil_mode or (any(padding) and not count_include_pad):
        _refuse("this gradient of avg_pool2d")
    kernel = _per_axis(kernel_size, 2)
    window = [_per_axis(one, 2) for one in (stride or kernel, padding, [1])]
    planes = grad.flatten(0, 1).unsqueeze(1)
    missing = _missing(x, grad, kernel, window)
    share = 1 / (divisor_override or kernel[0] * kernel[1])
    weight = torch.full([1, 1, *kernel], share, dtype=grad.dtype)
    spread = aten.convolution(planes, weight, None, *window, True, missing, 1)
    return spread.reshape(x.shape)


@decomposes(
    aten._adaptive_avg_pool2d_backward.default,
    cases=[
        case(f32(1, 2, 1, 1), f32(1, 2, 4, 6), static_only=_SIZES),
        case(f16(1, 2, 2, 3), f16(1, 2, 4, 6), static_only=_SIZES),
    ],
)
def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Tensor:
    factors = [extent // out for extent, out in zip(x.shape[-2:], grad.shape[-2:], strict=True)]
    if any(o * f != e for e, o, f in zip(x.shape[-2:], grad.shape[-2:], factors, strict=True)):
        _refuse("the gradient of adaptive_avg_pool2d between these sizes")
    shared = grad / (factors[0] * factors[1])
    lead, (height, width) = grad.shape[:-2], grad.shape[-2:]
    wide = shared.reshape(*lead, height, 1, width, 1)
    return wide.expand(*lead, height, factors[0], width, factors[1]).reshape(x.shape)


@decomposes(
    aten.max_pool2d_with_indices_backward.default,
    cases=[
        case(
            f32(1, 2, 2, 2), f32(1, 2, 4, 4), [2], [], [0], [1], False,
            i64(1, 2, 2, 2, values=(0, 3, 9, 15)), static_only=_SIZES,
        ),
        case(
            f32(1, 1, 2, 2), f32(1, 1, 3, 3), [2], [1], [0], [1], False,
            i64(1, 1, 2, 2, values=(4, 4, 4, 8)), static_only=_SIZES,
        ),
    ],
)  # fmt: skip
def max_pool2d_backward(
    grad: Tensor, x: Tensor, *window: Any, indices: Tensor | None = None
) -> Tensor:
    places = window[-1] if indices is None else indices
    empty = torch.zeros([*x.shape[:-2], x.shape[-2] * x.shape[-1]], dtype=grad.dtype)
    return empty.scatter_add(-1, places.flatten(-2), grad.flatten(-2)).reshape(x.shape)


@decomposes(
    aten.upsample_nearest2d_backward.default,
    cases=[
        case(f32(1, 2, 4, 6), [4, 6], [1, 2, 2, 2], None, None, static_only=_SIZES),
        case(f32(1, 2, 4, 6), [4, 6], [1, 2, 2, 3], 2.0, 2.0, static_only=_SIZES),
    ],
)
def upsample_nearest2d_backward(
    grad: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *scales: float | None
) -> Tensor:
    (height, width), (tall, wide) = input_size[-2:], output_size
    rows, columns = tall // height, wide // width
    if rows * height != tall or columns * width != wide:
        _refuse("the gradient of a resize by this factor")
    parts = grad.reshape(*input_size[:-2], height, rows, width, columns)
    return parts.sum([-3, -1])
