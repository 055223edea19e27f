"""Constructs that a compute unit does not take, as tests on one op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch

from ...asset.reading import DYNAMIC, Op, Type
from ..lint.view import HALF, FunctionView, ProgramView, kind

Test: TypeAlias = Callable[[ProgramView, FunctionView, Op], bool]

NEURAL_ENGINE_TYPES = (HALF, "f8E4M3FN", "si8", "ui8", "si16", "ui16")
MOST_RANK = 5
LONGEST_AXIS = 65536
MOST_KEYS = 16384
_POOLS = ("max_pool_1d", "max_pool_2d", "max_pool_3d")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_PRIMES = (2, 3)
_ATTENTION = "scaled_dot_product_attention"


def of_kind(*kinds: str) -> Test:
    """Return a test for ops of these kinds."""
    return lambda program, view, op: kind(op) in kinds


def calls(*composites: str) -> Test:
    """Return a test for calls of these composites."""
    return lambda program, view, op: program.composite(op) in composites


def data_types(view: FunctionView, op: Op) -> Iterator[Type]:
    """Yield the types of an op's results and of the operands that are not constants."""
    yield from (t for t in op.types if t.element)
    pairs = zip(op.operands, op.operand_types, strict=True)
    yield from (t for value, t in pairs if t.element and not view.is_constant(value))


def has_other_type(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether numbers have a type that the neural engine lacks; masks are another rule."""
    known = (*NEURAL_ENGINE_TYPES, "i1")
    return any(t.element not in known for t in data_types(view, op))


def has_mask(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether an op reads or computes booleans."""
    return any(t.element == "i1" for t in data_types(view, op))


def has_high_rank(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a tensor has more than five axes."""
    return any(len(t.shape) > MOST_RANK for t in data_types(view, op))


def has_dynamic_size(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a size is known only at run time."""
    return any(DYNAMIC in t.shape for t in data_types(view, op))


def has_long_axis(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether an axis is longer than the neural engine allows."""
    return any(max(t.shape, default=0) > LONGEST_AXIS for t in data_types(view, op))


def is_nearest(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether an op is `interpolate` that copies the nearest element."""
    mode = str(op.attributes.get("interpolation_mode", ""))
    return kind(op) == "interpolate" and "nearest" in mode


def is_exact_gelu(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether an op is gelu without the approximation by tanh."""
    return kind(op) == "gelu" and op.attributes.get("approximate") == "none"


def writes_at_value(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a slice is written at a position that is computed."""
    return kind(op) == "slice_update" and not all(view.is_constant(v) for v in op.operands[1:3])


def has_odd_stride(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a stride or dilation has a prime factor other than 2 and 3."""
    if kind(op) not in _CONVOLUTIONS:
        return False
    return any(_rest(step) > 1 for place in (2, 3) for step in _numbers(view, op, place))


def has_wide_stride_of_table(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a convolution with weights of a lookup table has a stride above 2."""
    if kind(op) not in _CONVOLUTIONS or not _is_made_by(view, op, "lut_to_dense"):
        return False
    return any(stride > 2 for stride in _numbers(view, op, 2))


def has_blocks_of_int4(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a linear layer has weights of 4 bits with several scales for each output."""
    if kind(op) != "batch_matmul" or not _is_made_by(view, op, "blockwise_shift_scale"):
        return False
    origin = view.origin(op.operands[1])
    assert origin is not None
    data, scale = origin.operand_types[:2]
    return data.element in ("si4", "ui4") and sum(size > 1 for size in scale.shape) > 1


def has_table_of_high_rank(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a weight comes from a lookup table with more than five axes."""
    origins = [view.origin(value) for value in op.operands]
    tables = [o for o in origins if o is not None and kind(o) == "lut_to_dense"]
    return any(len(table.operand_types[1].shape) > MOST_RANK for table in tables)


def _is_made_by(view: FunctionView, op: Op, name: str) -> bool:
    origin = view.origin(op.operands[1])
    return origin is not None and kind(origin) == name


def is_dilated_pool(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a maximum is taken over a dilated window."""
    return kind(op) in _POOLS and any(number > 1 for number in _numbers(view, op, 3))


def is_masked_by_infinity(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a constant -inf is added to scores of attention or of a softmax."""
    if program.composite(op) == _ATTENTION:
        return any(_has_infinity(view, value) for value in op.operands[3:])
    if kind(op) != "softmax":
        return False
    before = view.origin(op.operands[0])
    if before is None or kind(before) not in ("add", "where"):
        return False
    return any(_has_infinity(view, value) for value in before.operands)


def has_many_keys(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether attention or a softmax reads more keys than the neural engine takes."""
    if program.composite(op) == _ATTENTION:
        return op.operand_types[1].shape[-2] > MOST_KEYS
    return kind(op) == "softmax" and op.operand_types[0].shape[-1] > MOST_KEYS


def is_product_of_product(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether a product of two computed matrices is an operand of another one."""
    if not _multiplies_computed(view, op):
        return False
    before = [view.origin(value) for value in op.operands[:2]]
    return any(one is not None and _multiplies_computed(view, one) for one in before)


def is_linear(program: ProgramView, view: FunctionView, op: Op) -> bool:
    """Return whether rows are multiplied with a constant matrix."""
    if kind(op) != "batch_matmul" or not view.is_constant(op.operands[1]):
        return False
    return len(op.operand_types[1].shape) == 2 and len(op.operand_types[0].shape) < 4


def _multiplies_computed(view: FunctionView, op: Op) -> bool:
    return kind(op) == "batch_matmul" and not any(map(view.is_constant, op.operands[:2]))


def _has_infinity(view: FunctionView, value: int) -> bool:
    origin = view.origin(value)
    constant = None if origin is None else origin.attributes.get("value")
    return isinstance(constant, torch.Tensor) and bool(torch.isneginf(constant).any())


def _numbers(view: FunctionView, op: Op, place: int) -> list[int]:
    """Return the integers of a constant operand."""
    constant = view.constant(op.operands[place]) if place < len(op.operands) else None
    return [] if constant is None else [int(n) for n in constant.flatten().tolist()]


def _rest(number: int) -> int:
    """Return a number without its factors 2 and 3."""
    for prime in _PRIMES:
        while number and number % prime == 0:
            number //= prime
    return number
