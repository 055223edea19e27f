"""Lower slices, select, gather, index tensors, masks and nonzero."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...ir import dialect as cai
from ...ir import shapes, types
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, Number, case, decomposes, lowers
from ...lowering.cases import b1, c64, f16, f32, i8, i32, i64
from ...torch_compat import aten
from .._lib.subscript import (
    Subscript,
    common_shape,
    gather,
    per_part,
    subscript,
    wrap_index,
)

_LAST = 2**63 - 1


@lowers(
    aten.slice.Tensor,
    aten.slice_copy.Tensor,
    cases=[
        case(f32(2, 5), 1, 1, 4),
        case(f32(2, 5), -1, -3, -1),
        case(f32(2, 5), 1, 0, _LAST, 2),
        case(f32(2, 5), 1, None, None, 3),
        case(f32(5), 0, -100, 100),
        case(f32(5), 0, 2),
        case(i64(2, 5), 1, 3, _LAST),
        case(b1(4), 0, 1, 3),
        case(c64(4), 0, 1, 3),
        case(f16(4, 2), 0, None, -1),
    ],
)
def slice_(
    ctx: Ctx, x: Value, dim: Axis, start: Number | None, end: Number | None, step: int
) -> Value:
    first, last = bounds(start, end, x.type.shape[dim])
    if (first, step) == (0, 1) and reaches_end(last, x.type.shape[dim]):
        return x
    return _with_declared_size(ctx, cai.slice_axis(x, dim, first, last, step), dim)


def bounds(start: Number | None, end: Number | None, extent: int) -> tuple[Dim, Dim]:
    """Return start and end of a slice; static bounds of a static axis are clamped to it."""
    first, last = _position(start, 0), _position(end, shapes.FAR)
    if extent == types.DYNAMIC:
        return first, last
    return (
        slice(first, None).indices(extent)[0] if isinstance(first, int) else first,
        slice(None, last).indices(extent)[1] if isinstance(last, int) else last,
    )


def _position(given: Number | None, default: int) -> Dim:
    if given is None:
        return default
    return given if isinstance(given, Value) else max(min(int(given), shapes.FAR), -shapes.FAR)


def reaches_end(last: Dim, extent: int) -> bool:
    """Return whether a slice that ends at `last` reaches the end of the axis."""
    return isinstance(last, int) and last >= (shapes.FAR if extent == types.DYNAMIC else extent)


def _with_declared_size(ctx: Ctx, x: Value, axis: int) -> Value:
    """Give a slice with dynamic bounds the static size that the export declares.

    A reshape fails at run time if the slice is shorter; a cast would read out of bounds.
    """
    if x.type.shape[axis] != types.DYNAMIC or ctx.out.shape[axis] == types.DYNAMIC:
        return x
    return cai.reshape(x, ctx.dims(cai.sizes(x)))


@decomposes(aten.narrow_copy.default, cases=[case(f32(2, 5), 1, 1, 3), case(f32(5), 0, -2, 2)])
def narrow_copy(x: torch.Tensor, dim: int, start: int, length: int) -> torch.Tensor:
    return x.narrow(dim, start, length).clone()


@lowers(
    aten.select.int,
    aten.select_copy.int,
    cases=[
        case(f32(3, 4), 0, 1),
        case(f32(3, 4), -1, -1),
        case(f32(3, 4), 1, -3),
        case(i64(3), 0, 2),
        case(b1(3, 2), 0, 0),
    ],
)
def select(ctx: Ctx, x: Value, dim: Axis, index: Number) -> Value:
    first, last = index_bounds(x, dim, index)
    return cai.shrink_dims(cai.slice_axis(x, dim, first, last), [dim])


def index_bounds(x: Value, axis: int, index: Number) -> tuple[Dim, Dim]:
    """Return the slice bounds of a single position."""
    if isinstance(index, Value):
        first: Dim = wrap_index(index, cai.size(x, axis))
        return first, shapes.add(first, 1)
    # For index -1 the end is None: 0 would be the start of the axis.
    return bounds(int(index), int(index) + 1 or None, x.type.shape[axis])


@lowers(
    aten.index_select.default,
    cases=[
        case(f32(4, 3), 0, i64(2, values=(3, 0))),
        case(f32(4, 20), 0, i64(2, values=(3, 0))),
        case(f32(4, 70), 0, i64(2, values=(3, 0))),
        case(f32(2, 4, 3), 1, i32(3, values=(1, 1, 2))),
        case(f32(2, 4, 70), 1, i32(3, values=(1, 1, 2))),
        case(f32(4, 3), -1, i64(2, values=(2, 0), constant=True)),
        case(f16(4), 0, i64(values=(3,))),
        case(f32(values=(2.5,)), 0, i64(1, values=(0,))),
        case(f32(values=(2.5,)), 0, i64(values=(0,))),
        case(b1(4), 0, i64(2, values=(3, 0))),
        case(c64(3, 2), 1, i64(2, values=(1, 0))),
        case(i8(4), 0, i64(2, values=(3, 0))),
    ],
)
def index_select(ctx: Ctx, x: Value, dim: Axis, index: Value) -> Value:
    """Select rows; negative indices are invalid here (torch raises)."""
    if x.type.rank == 0:
        return x
    column, known = cai.cast(index, torch.int32), ctx.known("index")
    vector = cai.reshape(column, [1]) if column.type.rank == 0 else column
    tables = () if known is None else (known.reshape(-1),)
    at = Subscript((dim,), (vector,), cai.sizes(vector), False, tables)
    return gather(x, at)


@lowers(
    aten.gather.default,
    ignore=("sparse_grad",),  # affects the gradient only
    cases=[
        case(f32(3, 4), 1, i64(3, 2, values=(3, 0, 1))),
        case(f32(3, 4), 0, i64(1, 4, values=(2, 0, 1))),
        case(f32(3, 4), -1, i64(2, 2, values=(3, 0, 1))),
        case(f32(3, 4, 2), 1, i64(2, 6, 1, values=(3, 0, 1)), sparse_grad=True),
        case(f16(4), 0, i64(6, values=(3, 0, 1))),
        case(c64(4), 0, i64(2, values=(3, 0))),
        case(b1(4), 0, i64(2, values=(3, 0))),
        case(i32(values=(7,)), 0, i64(values=(0,))),
        case(f32(values=(7.0,)), 0, i64(2, values=(0,))),
        case(f32(3), 0, i64(values=(2,))),
        case(c64(), 0, i64(2, values=(0,))),
    ],
)
def gather_(ctx: Ctx, x: Value, dim: Axis, index: Value) -> Value:
    position = cai.cast(index, torch.int32)
    if x.type.rank == 0 or position.type.rank == 0:
        row, at = (cai.reshape(v, [1]) if v.type.rank == 0 else v for v in (x, position))
        return cai.reshape(_gather_along(row, at, 0), ctx.dims(cai.sizes(position)))
    return _gather_along(slice_to_cover(ctx, x, position, dim), position, dim)


def _gather_along(x: Value, position: Value, axis: int) -> Value:
    if cai.is_complex(x):
        return per_part(lambda part: cai.gather_along_axis(part, position, axis), x)
    return cai.gather_along_axis(x, position, axis)


def slice_to_cover(ctx: Ctx, x: Value, index: Value, axis: int) -> Value:
    """Slice `x` to the part that `index` covers: `index` may be smaller on the other axes."""
    ends = [
        shapes.FAR if i == axis or same else extent
        for i, (extent, same) in enumerate(
            zip(cai.sizes(index), same_sizes(ctx, "self", "index"), strict=True)
        )
    ]
    if all(end == shapes.FAR for end in ends if isinstance(end, int)) and shapes.is_static(ends):
        return x
    full_ends = [w if e == shapes.FAR else e for e, w in zip(ends, cai.whole(x), strict=True)]
    return cai.slice_(x, [0] * len(ends), full_ends)


def same_sizes(ctx: Ctx, one: str, other: str) -> list[bool]:
    """Return, per axis, whether the sizes of two arguments are known to be equal."""
    pairs = zip(ctx.fake(one).shape, ctx.fake(other).shape, strict=True)
    return [str(a) == str(b) for a, b in pairs]


@lowers(
    aten.index.Tensor,
    cases=[
        case(f32(4, 3), [i64(2, values=(3, -1))]),
        case(f32(4, 20), [i64(2, 2, values=(3, -1, 0))]),
        case(f32(4, 3), [i64(2, values=(-4, -1), constant=True)]),
        case(f32(4, 3), [None, i64(2, values=(2, -3))]),
        case(f32(4, 3), [i64(2, values=(3, -1)), i64(2, values=(0, -2))]),
        case(f32(4, 3), [i64(2, 1, values=(3, -1)), i64(1, 2, values=(0, -2))]),
        # With a first axis of size 1, its stride in elements is the size of the second axis.
        case(
            f32(1, 2), [i64(3, values=(-1, 0), constant=True), i64(3, constant=True, low=0, high=1)]
        ),
        case(f32(4, 3, 20), [i32(2, values=(3, -1)), i64(1, values=(1,))]),
        case(f32(2, 4, 3), [None, i64(2, values=(3, -1)), i64(2, values=(0, -2))]),
        case(f32(2, 4, 3), [i64(3, values=(0, 1, 1)), None, i64(3, values=(0, 2, 1))]),
        case(f32(2, 4, 3, 2), [None, i64(2, values=(3, 0)), None, i64(1, values=(1,))]),
        case(f32(4), [b1(4, values=(True, False, True, True))]),
        case(f32(4), [b1(4, values=(False,))]),
        case(f32(2, 3, 4), [b1(2, 3, values=(True, False, False, True))]),
        case(f32(2, 3, 20), [b1(2, 3, values=(True, False, False, True))]),
        case(f32(2, 4), [None, b1(4, values=(True, False, True, True))]),
        case(f32(2, 4), [None, b1(4, values=(False,))]),
        case(f32(2, 4), [None, b1(4, values=(True, False), constant=True)]),
        case(f32(3, 4), [b1(3, values=(True, False, True)), i64(1, values=(-1,))]),
        case(f32(2, 3, 4), [None, b1(3, values=(True, False, True)), i64(1, values=(-1,))]),
        case(f32(2, 3, 4), [b1(2, values=(True, True)), None, i64(1, values=(-1,))]),
        case(c64(4, 3), [i64(2, values=(3, -1))]),
        case(b1(4), [i64(2, values=(3, -1))]),
        case(f16(4, 3), [i64(values=(-1,))]),
    ],
)
def index(ctx: Ctx, x: Value, indices: Sequence[Value | None]) -> Value:
    return read(ctx, x, indices, gather)


def read(
    ctx: Ctx,
    x: Value,
    indices: Sequence[Value | None],
    gather: Callable[[Value, Subscript], Value],
) -> Value:
    """Return `x[indices]`, which `gather` emits."""
    known = ctx.known_each("indices")
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if not given:
        return x
    axis, mask = given[0]
    if len(given) == 1 and known[axis] is None and cai.is_bool(mask) and mask.type.rank > 1:
        x, mask = flatten_masked(x, mask, axis)
        indices = [*([None] * axis), mask]
    return gather(x, subscript(ctx, x, indices, known, ctx.never_negative("indices")))


@decomposes(
    aten.take.default,
    cases=[
        case(f32(2, 3), i64(2, 2, values=(5, -6, 0, -1))),
        case(f16(4), i64(values=(-1,))),
        case(i32(values=(7,)), i64(3, values=(0,))),
    ],
)
def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Flatten a rank-0 index too.

    Torch's decomposition calls .item() on it, which export rejects.
    """
    return aten.index(x.reshape(-1), [index.reshape(-1)]).reshape(index.shape)


def flatten_masked(x: Value, mask: Value, axis: int) -> tuple[Value, Value]:
    """Flatten the masked axes of a tensor and its mask into one."""
    sizes = cai.sizes(x)
    inner = sizes[axis : axis + mask.type.rank]
    total = shapes.product(inner)
    flat = cai.reshape(x, [*sizes[:axis], total, *sizes[axis + mask.type.rank :]])
    return flat, cai.reshape(mask, [total])


@lowers(
    aten.nonzero.default,
    cases=[
        case(f32(2, 3, values=(0.0, 1.5, -0.0, float("nan"), 2.0, 0.0))),
        case(b1(4, values=(True, False, True, True))),
        case(i32(3, values=(0,))),
    ],
)
def nonzero(ctx: Ctx, x: Value) -> Value:
    return cai.non_zero(x)


@lowers(
    aten.nonzero_static.default,
    cases=[
        case(f32(2, 3, values=(0.0, 1.5, 2.0)), size=2),
        case(f32(2, 3, values=(0.0, 1.5, 2.0)), size=6),
        case(i32(4, values=(0, 3)), size=5, fill_value=7),
    ],
)
def nonzero_static(ctx: Ctx, x: Value, size: Number, fill_value: int) -> Value:
    rows = cai.cast(cai.non_zero(x), ctx.out_dtype)
    extent: Dim = size if isinstance(size, Value) else int(size)
    filler = cai.broadcast_to(cai.i32(int(fill_value)), [extent, x.type.rank])
    return _with_declared_size(ctx, cai.slice_axis(cai.concat(0, [rows, filler]), 0, 0, extent), 0)


@lowers(
    aten.masked_select.default,
    cases=[
        case(f32(2, 3), b1(2, 3, values=(True, False, True, True))),
        case(f32(2, 3), b1(3, values=(True, False, True))),
        case(f32(3), b1(2, 1, values=(True, False))),
        case(i32(2, 3), b1(2, 3, values=(False,))),
        case(c64(3), b1(3, values=(False, True))),
        case(f32(), b1(values=(True,))),
    ],
)
def masked_select(ctx: Ctx, x: Value, mask: Value) -> Value:
    sizes = common_shape([x, mask])
    values, chosen = cai.broadcast_to(x, sizes), cai.broadcast_to(mask, sizes)
    total = shapes.product(sizes)
    flat, flat_mask = cai.reshape(values, [total]), cai.reshape(chosen, [total])
    known = ctx.known("mask")
    if known is not None and shapes.is_static(sizes):
        known = known.broadcast_to(sizes).reshape(-1)
        return gather(flat, subscript(ctx, flat, [flat_mask], [known]))
    return gather(flat, subscript(ctx, flat, [flat_mask], [None]))
