"""Lower `scatter` and similar ops: each element of the index is the position of one element."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...ir import dialect as cai
from ...ir.composite import Composite
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, Number, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64
from ...torch_compat import aten
from .._lib.subscript import per_part
from .gather import same_sizes
from .index_put import in_float32, scatter_reduced

_MODES = {
    "add": "add",
    "multiply": "mul",
    "sum": "add",
    "mean": "add",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}
_NAN = float("nan")

Scatter = Callable[[Value, Value, Value, int], Value]


@lowers(
    aten.scatter.src,
    cases=[
        case(f32(3, 4), 1, i64(3, 2, values=(3, 0, 1, 2)), f32(3, 2)),
        case(f32(3, 4), 0, i64(2, 4, values=(2, 0, 1, 1, 0)), f32(2, 4)),
        case(f16(3, 4), -1, i64(2, 2, values=(3, 0, 1, 2)), f16(3, 5)),
        case(f32(2, 3, 4), 1, i64(1, 2, 3, values=(2, 1, 0)), f32(2, 3, 4)),
        case(i8(4), 0, i64(2, values=(3, 0)), i8(2)),
        case(b1(4), 0, i64(2, values=(3, 0)), b1(2)),
        case(c64(4), 0, i64(2, values=(3, 0)), c64(3)),
        case(f32(), 0, i64(values=(0,)), f32()),
        case(f32(3), 0, i64(0), f32(0), static_only="nothing is scattered"),
    ],
)
def scatter(ctx: Ctx, x: Value, dim: Axis, index: Value, src: Value) -> Value:
    return _scattered(ctx, x, dim, index, src, replaced)


@lowers(
    aten.scatter.value,
    cases=[
        case(f32(3, 4), 1, i64(3, 2, values=(3, 0)), 2.5),
        case(i64(3, 4), 0, i64(2, 2, values=(2, 0)), 7),
        case(b1(4), 0, i64(1, values=(2,)), True),
    ],
)
def scatter_value(ctx: Ctx, x: Value, dim: Axis, index: Value, value: Number) -> Value:
    return _scattered(ctx, x, dim, index, cai.like(x, value), replaced)


@lowers(
    aten.scatter.reduce,
    cases=[
        case(f32(3, 4), 1, i64(3, 3, values=(3, 0, 3)), f32(3, 3), reduce="add"),
        case(f32(3, 4), 0, i64(2, 2, values=(2, 0)), f32(2, 2), reduce="multiply"),
        case(i32(4), 0, i64(3, values=(2, 0, 2)), i32(3), reduce="add"),
    ],
)
def scatter_by(ctx: Ctx, x: Value, dim: Axis, index: Value, src: Value, reduce: str) -> Value:
    return _scattered(ctx, x, dim, index, src, _by(_MODES[reduce]))


@lowers(
    aten.scatter.value_reduce,
    cases=[
        case(f32(3, 4), 1, i64(3, 3, values=(3, 0, 3)), 2.5, reduce="add"),
        case(f32(3, 4), 0, i64(2, 2, values=(2, 0)), 3, reduce="multiply"),
    ],
)
def scatter_value_by(
    ctx: Ctx, x: Value, dim: Axis, index: Value, value: Number, reduce: str
) -> Value:
    return _scattered(ctx, x, dim, index, cai.like(x, value), _by(_MODES[reduce]))


@lowers(
    aten.scatter_add.default,
    cases=[
        case(f32(3, 4), 1, i64(3, 6, values=(3, 0, 3, 1)), f32(3, 6)),
        case(f32(3, 4), 0, i64(2, 2, values=(2, 2, 0)), f32(4, 4)),
        case(f16(4), 0, i64(5, values=(3, 0, 3)), f16(5)),
        case(bf16(4), 0, i64(5, values=(3, 0, 3)), bf16(5)),
        case(bf16(3), 0, i64(900, values=(2, 0)), bf16(900, low=0, high=1)),
        case(i8(4), 0, i64(3, values=(3,)), i8(3, values=(100,))),
        case(b1(4), 0, i64(3, values=(3, 0)), b1(3, values=(True,))),
        case(c64(4), 0, i64(3, values=(3, 0)), c64(3)),
        case(f32(), 0, i64(values=(0,)), f32()),
    ],
)
def scatter_add(ctx: Ctx, x: Value, dim: Axis, index: Value, src: Value) -> Value:
    def add(x: Value, index: Value, src: Value) -> Value:
        return _scattered(ctx, x, dim, index, src, _by("add"))

    contract = Composite("scatter_add", _INPUTS, {"axis": dim})
    return in_float32(contract, add, x, index, src, _shapes(ctx))


_INPUTS = ("input", "index", "source")


def _shapes(ctx: Ctx) -> str:
    """Return the shapes of the operands: a scatter depends on which sizes are equal."""
    return str([ctx.fake(name).shape for name in ("self", "index", "src")])


_REDUCTIONS = [
    case(x(3, 4), 1, i64(3, 6, values=(3, 0, 3, 1)), x(3, 6), mode, include_self=own)
    for x in (f32, i32)
    for mode in ("sum", "prod", "mean", "amax", "amin")
    for own in (True, False)
]


@lowers(
    aten.scatter_reduce.two,
    cases=[
        *_REDUCTIONS,
        case(f32(3, 4), 0, i64(2, 2, values=(2, 2, 0)), f32(4, 4), "mean", include_self=False),
        case(f32(4), 0, i64(3, values=(3, 0)), f32(3, values=(_NAN, 1.0, 2.0)), "amax"),
        case(f32(4), 0, i64(3, values=(3, 0)), f32(3, values=(1.0, _NAN, 2.0)), "amin"),
        case(f32(2, values=(_NAN, 1.0)), 0, i64(1, values=(0,)), f32(1), "amax"),
        case(
            f32(2, values=(_NAN, 1.0)), 0, i64(1, values=(0,)), f32(1), "amin", include_self=False
        ),
        case(f16(4), 0, i64(5, values=(3, 0, 3)), f16(5), "mean"),
        case(bf16(3), 0, i64(900, values=(2, 0)), bf16(900, low=0, high=1), "mean"),
        case(bf16(4), 0, i64(5, values=(3, 0, 3)), bf16(5), "amax", include_self=False),
        case(b1(4), 0, i64(5, values=(3, 0, 3)), b1(5), "amin", include_self=False),
        case(b1(4), 0, i64(5, values=(3, 0, 3)), b1(5), "prod"),
        case(f32(), 0, i64(values=(0,)), f32(), "sum"),
    ],
)
def scatter_reduce(
    ctx: Ctx, x: Value, dim: Axis, index: Value, src: Value, reduce: str, include_self: bool
) -> Value:
    mode = _MODES[reduce]

    def scatter_by(box: Value, index: Value, terms: Value, axis: int) -> Value:
        start = box if include_self else replaced(box, index, _neutral(terms, reduce), axis)
        if reduce != "mean":
            return _by(mode)(start, index, terms, axis)
        return _mean(start, index, terms, axis, include_self)

    def scatter(x: Value, index: Value, src: Value) -> Value:
        return _scattered(ctx, x, dim, index, src, scatter_by)

    if reduce in ("amax", "amin"):
        return scatter(x, index, src)
    attrs = {"axis": dim, "reduce": reduce, "include_self": include_self}
    contract = Composite("scatter_reduce", _INPUTS, attrs)
    return in_float32(contract, scatter, x, index, src, _shapes(ctx))


def _mean(x: Value, index: Value, terms: Value, axis: int, include_self: bool) -> Value:
    """Return sums divided by counts; a position without new values keeps its value."""
    dtype = cai.dtype(x) if cai.is_float(x) else torch.int32
    wide, added = cai.cast(x, dtype), cai.cast(terms, dtype)
    total = cai.scatter_along_axis(wide, index, added, axis, "add")
    one = cai.like(wide, 1)
    own = cai.broadcast_to(cai.like(wide, int(include_self)), cai.sizes(x))
    hits = cai.broadcast_to(one, cai.sizes(terms))
    count = cai.maximum(cai.scatter_along_axis(own, index, hits, axis, "add"), one)
    # Torch rounds integer quotients towards minus infinity.
    divide = cai.div if cai.is_float(wide) else cai.floor_divide
    return cai.cast(divide(total, count), cai.dtype(x))


def _neutral(like: Value, reduce: str) -> Value:
    """Return the identity of a reduction in the shape of `like`."""
    return cai.broadcast_to(cai.like(like, _identity(cai.dtype(like), reduce)), cai.sizes(like))


def _identity(dtype: torch.dtype, reduce: str) -> float:
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype == torch.bool:
        return reduce == "amin"
    if dtype.is_floating_point:
        return float("inf") if reduce == "amin" else float("-inf")
    info = torch.iinfo(dtype)
    return int(info.max if reduce == "amin" else info.min)


def replaced(x: Value, index: Value, terms: Value, axis: int) -> Value:
    """Overwrite the elements at `index` with `terms`."""
    if cai.is_complex(x):
        return per_part(lambda a, b: replaced(a, index, b, axis), x, terms)
    return cai.scatter_along_axis(x, index, terms, axis)


def _by(mode: str) -> Scatter:
    """Return a function that combines the old value with the new ones."""

    def combine(x: Value, index: Value, terms: Value, axis: int) -> Value:
        if mode in ("add", "mul"):
            return scatter_reduced(x, index, terms, axis, mode)
        found = cai.scatter_along_axis(x, index, terms, axis, mode)
        if not cai.is_float(x):
            return found
        # Guard of NaN that passes through: the runtime ignores it among the new values.
        none = cai.broadcast_to(cai.constant(False, torch.bool), cai.sizes(x))
        has_nan = cai.scatter_along_axis(none, index, cai.not_equal(terms, terms), axis, "max")
        return cai.where(has_nan, cai.like(x, _NAN), found)

    return combine


def _scattered(ctx: Ctx, x: Value, axis: int, index: Value, src: Value, scatter: Scatter) -> Value:
    """Adapt operands to the dialect: in torch the index may be smaller than `x` and `src`."""
    if 0 in index.type.shape:
        return x
    place = cai.cast(index, torch.int32)
    if x.type.rank == 0 or place.type.rank == 0:
        row, at, term = (cai.reshape(v, [1]) if v.type.rank == 0 else v for v in (x, place, src))
        return cai.reshape(scatter(row, at, term, 0), ctx.dims(cai.sizes(x)))
    terms = _terms(ctx, src, place)
    same = same_sizes(ctx, "self", "index")
    if all(s for i, s in enumerate(same) if i != axis):
        return scatter(x, place, terms, axis)
    ends: list[Dim] = list(cai.sizes(place))
    ends[axis] = cai.whole(x)[axis]
    start = [0] * len(ends)
    box = scatter(cai.slice_(x, start, ends), place, terms, axis)
    return cai.slice_update(x, box, start, ends, [1] * len(ends))


def _terms(ctx: Ctx, src: Value, index: Value) -> Value:
    """Return the part of `src` that the index covers."""
    if src.type.rank == 0:
        return cai.broadcast_to(src, cai.sizes(index))
    if all(same_sizes(ctx, "src", "index")):
        return src
    return cai.slice_(src, [0] * src.type.rank, cai.sizes(index))


@decomposes(
    aten.index_reduce.default,
    cases=[
        case(x(4, 3), 0, i64(3, values=(3, 0, 3)), x(3, 3), mode, include_self=own)
        for x in (f32, i32)
        for mode in ("prod", "mean", "amax", "amin")
        for own in (True, False)
    ],
)
def index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    if x.dim() == 0:
        return torch.scatter_reduce(
            x, 0, index.reshape(()), source.reshape(()), reduce, include_self=include_self
        )
    shape = [1] * x.dim()
    shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)
