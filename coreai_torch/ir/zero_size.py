"""Scatters whose number of entries may be zero at run time."""

from __future__ import annotations

from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Value

from . import shapes, types
from .build import Build


def with_an_entry(
    x: Value, indices: Value, updates: Value, axis: int
) -> tuple[Value, Value, Value]:
    """A scatter with one entry more, to a place that is added behind the others.

    The process dies of none: `y.index_add(0, i, x[i])` with no `i`. An entry beyond the axis is
    no way out: it is written all the same, and `torch.unique` of 80 numbers ended in an abort.
    """
    if indices.type.shape[axis] != types.DYNAMIC or not Build.current().may_be_empty:
        return x, indices, updates
    at, behind = shapes.i32(axis), shapes.number(shapes.size(x, axis))
    added = []
    for value, filler in ((x, None), (indices, behind), (updates, None)):
        one = [1 if i == axis else n for i, n in enumerate(shapes.sizes(value))]
        zero = Build.current().number(0, types.dtype_of(value.type))
        row = shapes.broadcast_to(zero if filler is None else filler, one)
        added.append(gen.ConcatOp(at, [value, row]).result)
    longer, places, entries = added
    return longer, places, entries
