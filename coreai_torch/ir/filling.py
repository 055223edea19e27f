"""Padding by a number, as a copy or as an op that devices recognize."""

from __future__ import annotations

import torch
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Value

from . import padding as padding_
from . import shapes
from .literals import like
from .operands import Operand, check_choice, vocabulary
from .padding import Counts
from .reductions import with_extra_row


@vocabulary
def pad(x: Value, padding: Counts, value: Operand | None = None) -> Value:
    """Pad each axis before and after with a number.

    Args:
        x: a tensor of floats, integers or booleans.
        padding: one pair (before, after) for each axis, not negative.
        value: the number, or a rank-0 tensor; 0 by default.

    Returns:
        A tensor of the element type of `x` in the padded sizes.

    Examples:
        >>> evaluate(lambda x: dialect.pad(x, [(1, 2)], 9), [1.0, 2.0])
        tensor([9., 1., 2., 9., 9.])
    """
    if padding_.is_nothing(padding) or not padding_.can_copy(x):
        return pad_op(x, padding, value)
    return padding_.copy_into_filled(x, padding, like(x, 0) if value is None else value)


@vocabulary
def pad_op(
    x: Value, padding: Counts, value: Operand | None = None, mode: str = "constant"
) -> Value:
    """Pad by the dialect's op, which a device can merge with the convolution or pool after it.

    A convolution or pool has no padding in the dialect, so a compiler for a device can only find
    it as this op before the window op.

    Args:
        x: a tensor of floats, integers or booleans.
        padding: one pair (before, after) for each axis, not negative.
        value: the number for the mode `"constant"`; 0 by default.
        mode: `"constant"`, `"reflect"`, `"replicate"` or `"circular"`.

    Returns:
        A tensor of the element type of `x` in the padded sizes.

    Examples:
        >>> evaluate(lambda x: dialect.pad_op(x, [(1, 1)], mode="reflect"), [1.0, 2.0, 3.0])
        tensor([2., 1., 2., 3., 2.])
    """
    check_choice("pad_op", "mode", mode, ("constant", "reflect", "replicate", "circular"))
    if padding_.is_nothing(padding):
        return x
    flat = [count for pair in padding for count in pair]
    filler = like(x, 0) if value is None else value
    counts = shapes.vector(flat, torch.uint32)
    axis = int(padding_.is_nothing(padding[:1]))  # whether axis 0 is not padded
    return with_extra_row(x, axis, lambda rows: _coreai.pad(rows, counts, filler, mode))
