"""Padding by a number or with elements of the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Value

from . import shapes
from .literals import like
from .operands import Operand, check_choice, vocabulary
from .reductions import with_extra_row
from .shapes import Dim

Counts: TypeAlias = Sequence[tuple[Dim, Dim]]  # (before, after) for each axis


@vocabulary
def pad(x: Value, padding: Counts, value: Operand | None = None, mode: str = "constant") -> Value:
    """Pad each axis before and after.

    A convolution or pool has no padding in the dialect: a compiler for a device merges this op
    with the convolution or pool after it.

    Args:
        x: a tensor of floats, integers or booleans.
        padding: one pair (before, after) for each axis, not negative.
        value: the number for the mode `"constant"`, or a rank-0 tensor; 0 by default.
        mode: `"constant"`, `"reflect"`, `"replicate"` or `"circular"`.

    Returns:
        A tensor of the element type of `x` in the padded sizes.

    Examples:
        >>> evaluate(lambda x: dialect.pad(x, [(1, 2)], 9), [1.0, 2.0])
        tensor([9., 1., 2., 9., 9.])
        >>> evaluate(lambda x: dialect.pad(x, [(1, 1)], mode="reflect"), [1.0, 2.0, 3.0])
        tensor([2., 1., 2., 3., 2.])
    """
    check_choice("pad", "mode", mode, ("constant", "reflect", "replicate", "circular"))
    if is_nothing(padding):
        return x
    flat = [count for pair in padding for count in pair]
    filler = like(x, 0) if value is None else value
    counts = shapes.vector(flat, torch.uint32)
    axis = int(is_nothing(padding[:1]))  # whether axis 0 is not padded
    return with_extra_row(x, axis, lambda rows: _coreai.pad(rows, counts, filler, mode))


def is_nothing(padding: Counts) -> bool:
    """Return whether no axis is padded."""
    return all(isinstance(count, int) and count == 0 for pair in padding for count in pair)
