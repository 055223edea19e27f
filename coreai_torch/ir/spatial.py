"""Ops over two or three spatial axes: convolutions, pools and resampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Attribute, RankedTensorType, Value

from . import shapes
from .build import Build
from .operands import check_choice, vocabulary
from .shapes import Dim, u32


@vocabulary
def conv(
    x: Value, weight: Value, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Value:
    """Convolve over two or three spatial axes, without padding or bias.

    Pad with `pad` first; for one axis add a second one of size one.

    Args:
        x: a tensor `[batch, channels, ...]` of floats or complex numbers.
        weight: a tensor `[out, channels / groups, ...]` of the element type of `x`.
        stride: the distance between windows, for each of two or three axes.
        dilation: the distance between elements of a window.
        groups: the number of groups of channels.

    Returns:
        A tensor `[batch, out, ...]` of the element type of `x`.

    Examples:
        >>> evaluate(
        ...     lambda x, w: dialect.conv(x, w, [1, 1], [1, 1], 1),
        ...     torch.ones(1, 1, 2, 3),
        ...     torch.ones(1, 1, 2, 2),
        ... )
        tensor([[[[4., 4.]]]])
    """
    op = gen.Conv2dOp if len(stride) == 2 else gen.Conv3dOp
    return op(x, weight, u32(list(stride)), u32(list(dilation)), u32(groups)).result


@vocabulary
def conv_transpose(
    result: RankedTensorType,
    x: Value,
    weight: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Compute a transposed convolution over two or three spatial axes.

    Args:
        result: the type of the result, which is not checked.
        x: a tensor `[batch, channels, ...]` of floats or complex numbers.
        weight: a tensor `[channels, out / groups, ...]` of the element type of `x`.
        stride: the distance between windows, for each of two or three axes.
        padding: the elements to drop on both sides of the result.
        dilation: the distance between elements of a window.
        output_padding: the elements to add at the end of the result.
        groups: the number of groups of channels.

    Returns:
        A tensor of the type `result`.

    Examples:
        >>> evaluate(
        ...     lambda x, w: dialect.conv_transpose(
        ...         x.type, x, w, [1, 1], [0, 0], [1, 1], [0, 0], 1
        ...     ),
        ...     torch.ones(1, 1, 1, 3),
        ...     torch.full((1, 1, 1, 1), 2.0),
        ... )
        tensor([[[[2., 2., 2.]]]])
    """
    op = gen.ConvTranspose2dOp if len(stride) == 2 else gen.ConvTranspose3dOp
    windows = (u32(list(w)) for w in (stride, padding, dilation, output_padding))
    return op(result, x, weight, *windows, u32(groups)).result


@vocabulary
def max_pool(
    result: RankedTensorType,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
) -> Value:
    """Return the maximum of each window over two or three spatial axes, without padding.

    Args:
        result: the type of the result, which is not checked.
        x: a tensor `[batch, channels, ...]` of floats or integers with two or three spatial axes.
        kernel: the sizes of the window.
        stride: the distance between windows, for each of two or three axes.
        dilation: the distance between elements of a window.
        ceil_mode: whether the last window may end outside.

    Returns:
        A tensor of the type `result`.

    Examples:
        >>> evaluate(
        ...     lambda x: dialect.max_pool(x.type, x, [1, 1], [1, 1], [1, 1]),
        ...     torch.arange(3.0).reshape(1, 1, 1, 3),
        ... )
        tensor([[[[0., 1., 2.]]]])
    """
    op = gen.MaxPool2dOp if len(kernel) == 2 else gen.MaxPool3dOp
    windows = (u32(list(w)) for w in (kernel, stride, dilation))
    return op(result, x, *windows, Build.current().number(ceil_mode, torch.bool)).result


@vocabulary
def sum_pool(
    x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Value:
    """Return the sum of each window over two or three spatial axes, without padding.

    Args:
        x: a tensor `[batch, channels, ...]` of floats or integers with two or three spatial axes.
        kernel: the sizes of the window.
        stride: the distance between windows, for each of two or three axes.
        dilation: the distance between elements of a window.

    Returns:
        A tensor of the element type of `x`.

    Examples:
        >>> evaluate(lambda x: dialect.sum_pool(x, [1, 2], [1, 1], [1, 1]), torch.ones(1, 1, 1, 4))
        tensor([[[[2., 2., 2.]]]])
    """
    op = gen.SumPool2dOp if len(kernel) == 2 else gen.SumPool3dOp
    return op(x, *(u32(list(w)) for w in (kernel, stride, dilation))).result


@vocabulary
def interpolate(
    x: Value,
    output_shape: Sequence[Dim],
    scale: Sequence[float],
    offset: Sequence[float],
    mode: str,
) -> Value:
    """Resample all axes; position `i` reads `(i + 0.5 - offset) / scale - 0.5`.

    Args:
        x: a tensor of floats.
        output_shape: the size of each axis of the result, as numbers or rank-0 tensors.
        scale: the scale of each axis.
        offset: the offset of each axis.
        mode: `"linear"` or `"nearest_neighbor"`.

    Returns:
        A tensor of the element type of `x` in the sizes `output_shape`.

    Examples:
        >>> evaluate(lambda x: dialect.interpolate(x, [4], [2.0], [0.0], "linear"), [0.0, 1.0])
        tensor([0.0000, 0.2500, 0.7500, 1.0000])
    """
    check_choice("interpolate", "mode", mode, ("linear", "nearest_neighbor"))
    how = Attribute.parse(f"#coreai.interpolation_mode<{mode}>")
    dims = shapes.vector(output_shape)
    result = _coreai.interpolate(x, dims, _floats(scale), _floats(offset), how)
    return shapes.refine(result, shapes.tensor_type(output_shape, x))


def _floats(values: Sequence[float]) -> Value:
    return Build.current().tensor(torch.tensor(list(values), dtype=torch.float32), "table")
