"""Scatters whose number of entries may be zero at run time."""

from __future__ import annotations

from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Value

from . import shapes, types
from .build import Build


def with_extra_entry(
    x: Value, indices: Value, updates: Value, axis: int
) -> tuple[Value, Value, Value]:
    """Return the operands of a scatter with one more entry, for a place added behind the others.

    The process aborts on a scatter without entries: `y.index_add(0, i, x[i])` with an empty `i`
    (coreai-core 1.0.0b2). The extra entry needs a place: an index beyond the axis is written to
    memory all the same, and `torch.unique` of 80 numbers ended in an abort.
    """
    if not Build.current().zero_sizes.along(indices, [axis]):
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
