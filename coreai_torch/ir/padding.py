"""Padding with a constant, as an op or as a copy into a filled tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Value

from . import shapes, types
from .build import Build
from .shapes import Dim

Counts = Sequence[tuple[Dim, Dim]]
_SHORTEST_ROW = 64  # elements


def is_nothing(padding: Counts) -> bool:
    """Return whether no axis is padded."""
    return all(isinstance(count, int) and count == 0 for pair in padding for count in pair)


def can_copy(x: Value) -> bool:
    """Return whether `copy_into_filled` accepts the operand, which may not be empty."""
    return not Build.current().zero_sizes.of(x) and 0 not in x.type.shape


def copy_into_filled(x: Value, padding: Counts, filler: Value) -> Value:
    """Pad by writing `x` into a tensor of `filler`.

    `coreai.pad` takes 0.18 µs for each element of its result: 610 ms for 64 x 224 x 224, padded by
    three on each side, where this takes 55 ms (coreai-core 1.0.0b3, x86).
    """
    if _has_integer_rows(x, padding):
        return _write_rows(x, padding, filler)
    sizes = shapes.sizes(x)
    starts = [before for before, _ in padding]
    ends = [shapes.add(n, before) for n, before in zip(sizes, starts, strict=True)]
    dims = [shapes.add(end, after) for end, (_, after) in zip(ends, padding, strict=True)]
    ones: list[Dim] = [1] * len(sizes)
    return gen.SliceUpdateOp(
        filled(filler, dims), *(shapes.vector(v) for v in (starts, ends, ones)), x
    ).result


def _has_integer_rows(x: Value, padding: Counts) -> bool:
    """Return whether `_write_rows` accepts the operand and is faster.

    Images of bytes are; floats may be on a neural engine, which has no scatter.
    """
    if types.dtype_of(x.type).is_floating_point:
        return False
    dims = [*shapes.sizes_of_type(x), *(count for pair in padding for count in pair)]
    is_known = all(isinstance(dim, int) and dim >= 0 for dim in dims)
    return is_known and math.prod(x.type.shape[_last_padded(padding) + 1 :]) >= _SHORTEST_ROW


def _last_padded(padding: Counts) -> int:
    return max(axis for axis, pair in enumerate(padding) if not is_nothing([pair]))


def _write_rows(x: Value, padding: Counts, filler: Value) -> Value:
    """Pad by writing the rows behind the last padded axis.

    Each element of a slice takes 12 ns to write, each element of a row of 640 less than 1 ns.
    """
    last = _last_padded(padding)
    extents = [int(extent) for extent in x.type.shape]
    dims = [n + int(a) + int(b) for n, (a, b) in zip(extents, padding, strict=True)]
    index = torch.zeros(1, dtype=torch.int32)
    for extent, dim, (before, _) in list(zip(extents, dims, padding, strict=True))[: last + 1]:
        along = torch.arange(extent, dtype=torch.int32) + int(before)
        index = (index[:, None] * dim + along).reshape(-1)
    row = math.prod(extents[last + 1 :])
    rows = shapes.reshape(x, [len(index), row])
    base = filled(filler, [math.prod(dims[: last + 1]), row])
    places = Build.current().tensor(index[:, None].contiguous(), "rows")
    return shapes.reshape(_coreai.scatter_nd(base, places, rows), dims)


def filled(number: Value, dims: Sequence[Dim]) -> Value:
    """Return a tensor with one rank-0 number everywhere.

    It is broadcast from a row. From a single element it takes 10 ns for each element of the result,
    from a row 2 ns (coreai-core 1.0.0b3, x86).
    """
    if dims and not (shapes.is_constant(number) and isinstance(dims[-1], int)):
        number = shapes.broadcast_to(number, [1] * (len(dims) - 1) + [dims[-1]])
    return shapes.broadcast_to(number, dims)
