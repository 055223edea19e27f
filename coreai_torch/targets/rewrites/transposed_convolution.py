"""Transposed convolutions over one axis as convolutions of an input with zeros in between."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, known, numbers


def apply(op: Operation) -> Sequence[Value] | None:
    """Replace a transposed convolution over two axes if input and kernel have size 1 at one."""
    if kind(op) != "conv_transpose2d":
        return None
    x, weight, *options = op.operands
    if (1, 1) not in zip(x.type.shape[2:], weight.type.shape[2:], strict=True) or any(
        known(value) is None for value in options
    ):
        return None
    if any(n < 0 for n in (*x.type.shape[2:], *weight.type.shape)):
        return None
    stride, padding, dilation, extra = (numbers(value) for value in options[:4])
    (groups,) = numbers(options[4])
    for axis in range(2):
        reach = dilation[axis] * (weight.type.shape[2 + axis] - 1) - padding[axis]
        x = _spread(x, 2 + axis, stride[axis])
        x = _padded(x, 2 + axis, reach, reach + extra[axis])
    return [
        d.refine(d.conv(x, _turned(weight, groups), [1, 1], dilation, groups), op.results[0].type)
    ]


def _spread(x: Value, axis: int, stride: int) -> Value:
    """Put `stride - 1` zeros between neighbors along an axis."""
    if stride == 1 or x.type.shape[axis] == 1:
        return x
    sizes = list(d.sizes(x))
    count = int(x.type.shape[axis])
    apart = d.reshape(x, [*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
    counts = [(0, stride - 1) if i == axis + 1 else (0, 0) for i in range(apart.type.rank)]
    longer = d.reshape(d.pad(apart, counts), [*sizes[:axis], count * stride, *sizes[axis + 1 :]])
    return d.slice_axis(longer, axis, 0, (count - 1) * stride + 1)


def _padded(x: Value, axis: int, before: int, after: int) -> Value:
    """Pad an axis; negative counts cut."""
    count = int(x.type.shape[axis])
    x = (
        d.slice_axis(x, axis, max(-before, 0), count - max(-after, 0))
        if min(before, after) < 0
        else x
    )
    counts = [(max(before, 0), max(after, 0)) if i == axis else (0, 0) for i in range(4)]
    return d.pad(x, counts)


def _turned(weight: Value, groups: int) -> Value:
    """Return the weight of the convolution: outputs first, both spatial axes reversed."""
    inputs, outputs, *window = weight.type.shape
    split = d.reshape(weight, [groups, inputs // groups, outputs, *window])
    swapped = d.transpose(split, [0, 2, 1, 3, 4])
    return d.reverse(d.reshape(swapped, [groups * outputs, inputs // groups, *window]), [2, 3])
