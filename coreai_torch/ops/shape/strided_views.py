"""Lower strided views: `as_strided`, `unfold`, `col2im`, diagonals and views as another dtype."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Axis, Ctx, Number, Shape, case, decomposes, lowers
from ...lowering.cases import b1, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import OpOverload, aten
from .._lib.windows import Slide
from ..nn.convolution import stuff_zeros
from .pad import filled

_NAN, _INF = float("nan"), float("inf")
_WINDOWS = "the sizes of the windows are numbers of the case"
_NUMBERS = "the strides are numbers of the case"


@lowers(
    aten.as_strided.default,
    aten.as_strided_copy.default,
    cases=[
        case(f32(4, 3), [2, 2], [3, 1], static_only=_NUMBERS),
        case(f32(4, 3), [3, 2], [1, 3], 2, static_only=_NUMBERS),
        case(f32(9), [3, 4], [2, 1], 1, static_only=_NUMBERS),
        case(f32(8), [2, 4], [4, 1], 0, static_only=_NUMBERS),
        case(f32(8), [4], [1], 3, static_only=_NUMBERS),
        case(f16(8), [2, 3], [0, 2], static_only=_NUMBERS),
        case(b1(8), [], [], 5, static_only=_NUMBERS),
        case(i64(6), [3], [2], static_only=_NUMBERS),
        case(c64(6), [3], [2], static_only=_NUMBERS),
    ],
)
def as_strided(
    ctx: Ctx, x: Value, size: Shape, stride: Shape, storage_offset: Number | None
) -> Value:
    source = _root(ctx.call.node.args[0])
    fake, first = source.meta["val"], ctx.fake("self").storage_offset()
    flat = _storage(ctx, ctx.call.scope.value(source), fake)
    offset = _offset(ctx, fake, first if storage_offset is None else storage_offset)
    dims = ctx.dims(size)
    _check_end(ctx, fake, dims, stride, offset)
    if _contiguous(dims, stride):
        count = shapes.product(dims)
        return cai.reshape(cai.slice_axis(flat, 0, offset, shapes.add(offset, count)), dims)
    index = _positions(dims, stride, offset)
    if cai.is_complex(x):
        return cai.gather_nd(flat, cai.expand_dims(index, [len(dims)]))
    places = cai.reshape(index, [shapes.product(dims)])
    return cai.reshape(cai.gather_along_axis(flat, places, 0), dims)


@lowers(
    aten.as_strided_scatter.default,
    cases=[
        case(f32(4, 3), f32(2, 2), [2, 2], [3, 1], static_only=_NUMBERS),
        case(f16(4, 3), f16(3, 2), [3, 2], [1, 3], 2, static_only=_NUMBERS),
        case(i32(8), i32(4), [4], [1], 3, static_only=_NUMBERS),
    ],
)
def as_strided_scatter(
    ctx: Ctx, x: Value, src: Value, size: Shape, stride: Shape, storage_offset: Number | None
) -> Value:
    fake = ctx.fake("self")
    flat = _storage(ctx, x, fake)
    offset = 0 if storage_offset is None else _offset(ctx, fake, storage_offset)
    dims = tuple(size)
    if _contiguous(dims, stride):
        count = shapes.product(dims)
        box = cai.reshape(src, [count])
        written = cai.slice_update(flat, box, [offset], [shapes.add(offset, count)], [1])
    else:
        index = _positions(dims, stride, offset)
        written = cai.scatter_nd(flat, cai.expand_dims(index, [len(dims)]), src)
    order = _order(ctx, fake)
    turned = cai.reshape(written, [cai.sizes(x)[a] for a in order])
    return cai.transpose(turned, [order.index(a) for a in range(len(order))])


@lowers(
    aten.resize.default,
    ignore=("memory_format",),  # read from the node: not a value
    cases=[
        case(f32(4, 3), [2, 5], static_only=_NUMBERS),
        case(i64(6), [3, 2], static_only=_NUMBERS),
        case(b1(4), [], static_only=_NUMBERS),
    ],
)
def resize(ctx: Ctx, x: Value, size: Shape) -> Value:
    fake, dims = ctx.fake("self"), ctx.dims(size)
    if ctx.call.node.kwargs.get("memory_format") not in (None, torch.contiguous_format):
        ctx.refuse("a memory format other than contiguous changes the order of the elements")
    count = shapes.product(dims)
    if isinstance(count, int) and isinstance(fake.numel(), int) and count > fake.numel():
        ctx.refuse("a size with more elements than the tensor has gives undefined values")
    return cai.reshape(cai.slice_axis(_storage(ctx, x, fake), 0, 0, count), dims)


def _root(node: Any) -> Any:
    """Return the base of a chain of views: strides can reach its memory outside of a view."""
    while isinstance(node.target, OpOverload) and node.target.is_view:
        source, fake = node.args[0], node.meta["val"]
        in_other_units = source.meta["val"].dtype != fake.dtype
        if in_other_units or not isinstance(fake.storage_offset(), int):
            break
        node = source
    return node


def _order(ctx: Ctx, fake: Any) -> list[int]:
    """Return the axes in memory order, the longest stride first."""
    order = sorted(range(fake.dim()), key=lambda a: -_static(ctx, fake.stride(a)))
    if not fake.permute(order).is_contiguous():
        ctx.refuse("strides of a view with gaps are not supported", "call x.contiguous() first")
    return order


def _static(ctx: Ctx, extent: Any) -> int:
    return int(extent) if isinstance(extent, int) else int(extent.node.hint)


def _storage(ctx: Ctx, x: Value, fake: Any) -> Value:
    """Return the elements as a vector in torch's memory order."""
    return cai.reshape(cai.transpose(x, _order(ctx, fake)), [shapes.product(cai.sizes(x))])


def _offset(ctx: Ctx, fake: Any, storage_offset: Any) -> Dim:
    """Return the offset from the tensor's first element, which may not be the first in memory."""
    own = fake.storage_offset()
    if storage_offset is own:
        return 0
    if not isinstance(storage_offset, int) or not isinstance(own, int):
        ctx.refuse("a dynamic storage offset is not supported")
    if storage_offset < own:
        ctx.refuse("a view that begins before the tensor it is taken of")
    return storage_offset - own


def _check_end(
    ctx: Ctx, fake: Any, dims: Sequence[Dim], stride: Sequence[Dim], offset: Dim
) -> None:
    """Reject a view past the tensor's end: the runtime would read undefined values."""
    known = [offset, *dims, *stride, fake.numel()]
    if not all(isinstance(extent, int) for extent in known):
        return
    last = offset + sum((d - 1) * s for d, s in zip(dims, stride, strict=True))
    if last >= fake.numel():
        ctx.refuse("a view that ends behind the tensor it is taken of")


def _contiguous(dims: Sequence[Dim], stride: Sequence[Dim]) -> bool:
    expected = 1
    for extent, step in zip(reversed(dims), reversed(stride), strict=True):
        if not isinstance(extent, int) or not isinstance(step, int):
            return False
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True


def _positions(dims: Sequence[Dim], stride: Sequence[Dim], offset: Dim) -> Value:
    """Return the position of each element, computed from size and stride without a table."""
    position = shapes.number(offset)
    for axis, (extent, step) in enumerate(zip(dims, stride, strict=True)):
        stop = cai.i32(extent) if isinstance(extent, int) else extent
        count = cai.range_(cai.i32(0), stop, cai.i32(1))
        along = cai.expand_dims(
            cai.mul(count, shapes.number(step)), list(range(1, len(dims) - axis))
        )
        position = cai.add(position, along)
    return cai.broadcast_to(position, dims)


@decomposes(
    aten.unfold.default,
    cases=[
        case(f32(2, 7), 1, 3, 2),
        case(f32(2, 7), -1, 3, 1),
        case(f32(8, 2), 0, 2, 2),
        case(f32(9, 2), 0, 2, 3),
        case(i64(7), 0, 4, 2),
        case(b1(4), 0, 4, 1),
        case(f32(), 0, 1, 1),
    ],
)
def unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    if x.dim() == 0:
        return x.reshape(1).narrow(0, 0, size)
    dim = dimension % x.dim()
    count = (x.shape[dim] - size) // step + 1
    if free_unbacked_symbols(x):  # torch cannot view a tensor with a data-dependent size
        starts = torch.arange(count, device=x.device) * step
        places = starts.unsqueeze(1) + torch.arange(size, device=x.device)
        return x[(slice(None),) * dim + (places,)].movedim(dim + 1, -1)
    if step == size:
        rows = x.narrow(dim, 0, count * size)
    else:
        starts = torch.arange(count, device=x.device) * step
        places = starts.unsqueeze(1) + torch.arange(size, device=x.device)
        rows = x.index_select(dim, places.reshape(-1))
    return rows.unflatten(dim, (count, size)).movedim(dim + 1, -1)


@lowers(
    aten.im2col.default,
    cases=[
        case(f32(2, 3, 6, 8), [3, 2], [1, 1], [0, 0], [3, 2]),
        case(f32(2, 3, 7, 6), [3, 2], [2, 1], [1, 0], [1, 2]),
        case(f16(3, 5, 4), [2, 2], [1, 1], [1, 1], [1, 1]),
        case(b1(1, 2, 4, 5), [2, 3], [1, 1], [0, 1], [2, 1]),
        case(c64(1, 2, 4, 5), [2, 2], [1, 1], [1, 0], [2, 1]),
        case(f32(1, 2, 4, 4, values=(_NAN, 1.0, _INF)), [3, 3], [1, 1], [1, 1], [1, 1], exact=True),
    ],
)
def im2col(
    ctx: Ctx,
    x: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Without `exact`, an infinity or NaN makes the windows that it is in NaN."""
    planes = cai.expand_dims(x, range(4 - x.type.rank))
    planes = filled(planes, [(0, 0), (0, 0), *((p, p) for p in padding)], 0)
    batch, channels, *extents = cai.sizes(planes)
    slides = [Slide(k, s, 0, d) for k, s, d in zip(kernel_size, stride, dilation, strict=True)]
    counts = [slide.windows(extent) for slide, extent in zip(slides, extents, strict=True)]
    if all(_tiles(slide, extent) for slide, extent in zip(slides, extents, strict=True)):
        (rows, high), (columns, wide) = zip(counts, kernel_size, strict=True)
        tiles = cai.reshape(planes, [batch, channels, rows, high, columns, wide])
        windows = cai.transpose(tiles, [0, 1, 3, 5, 2, 4])
    elif cai.is_float(x) and isinstance(channels, int) and not ctx.exact:
        kernels = _one_hot(kernel_size, channels, cai.dtype(x))
        windows = cai.conv(planes, kernels, stride, dilation, channels)
    else:
        starts = itertools.product(
            *(range(0, k * d, d) for k, d in zip(kernel_size, dilation, strict=True))
        )
        parts = [_tap(planes, start, slides, counts) for start in starts]
        windows = cai.concat(2, parts)
    sizes = [batch, shapes.mul(channels, math.prod(kernel_size)), shapes.product(counts)]
    return cai.reshape(windows, sizes[3 - ctx.out.rank :])


def _tiles(slide: Slide, extent: Dim) -> bool:
    """Return whether windows follow each other without gaps, and end with the axis."""
    steps = slide.stride == slide.kernel and slide.dilation == 1
    return steps and isinstance(extent, int) and extent % slide.kernel == 0


def _tap(x: Value, start: Sequence[int], slides: Sequence[Slide], counts: Sequence[Dim]) -> Value:
    """Return the element at `start` of each window, with an axis for the taps."""
    ends = [
        shapes.add(shapes.mul(shapes.sub(count, 1), slide.stride), first + 1)
        for first, slide, count in zip(start, slides, counts, strict=True)
    ]
    lead = cai.whole(x)[:2]
    steps = [1, 1, *(slide.stride for slide in slides)]
    return cai.expand_dims(cai.slice_(x, [0, 0, *start], [*lead, *ends], steps), [2])


@lowers(
    aten.col2im.default,
    cases=[
        case(f32(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1], static_only=_WINDOWS),
        case(f32(2, 27, 4), [4, 4], [3, 3], [1, 1], [1, 1], [2, 2], static_only=_WINDOWS),
        case(f32(8, 6), [4, 6], [2, 2], [1, 1], [0, 0], [2, 2], static_only=_WINDOWS),
        case(f32(1, 6, 4), [5, 6], [3, 2], [2, 1], [0, 1], [1, 2], static_only=_WINDOWS),
        case(f32(1, 4, 4), [7, 7], [2, 2], [1, 1], [0, 0], [5, 5], static_only=_WINDOWS),
        case(f16(1, 8, 4, fixed=True), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
        case(
            f32(1, 4, 4, values=(_NAN, 1.0, _INF, 2.0)),
            *([3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
            static_only=_WINDOWS,
            exact=True,
        ),
    ],
)
def col2im(
    ctx: Ctx,
    x: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Without `exact`, an infinity or NaN makes the sums of its window NaN."""
    slides = [Slide(*w) for w in zip(kernel_size, stride, padding, dilation, strict=True)]
    counts = [slide.windows(e) for slide, e in zip(slides, output_size, strict=True)]
    *batch, rows, _ = cai.sizes(x)
    channels, lead = shapes.floordiv(rows, math.prod(kernel_size)), batch or [1]
    if isinstance(channels, int) and (cai.is_complex(x) or not ctx.exact):
        reach = [(n - 1) * s.stride + s.reach for n, s in zip(counts, slides, strict=True)]
        rest = [e + 2 * p - r for e, p, r in zip(output_size, padding, reach, strict=True)]
        total = cai.conv_transpose(
            shapes.tensor_type([*lead, channels, *output_size], x),
            cai.reshape(x, [*lead, rows, *counts]),
            _one_hot(kernel_size, channels, cai.dtype(x)),
            *(stride, padding, dilation, rest, channels),
        )
    else:
        total = _summed(cai.reshape(x, [*lead, channels, -1, *counts]), slides, output_size)
    return cai.reshape(total, [*batch, channels, *output_size])


def _one_hot(kernel_size: Sequence[int], channels: int, dtype: torch.dtype) -> Value:
    """Return kernels of a grouped convolution that copy one element of a window each."""
    taps = math.prod(kernel_size)
    one = torch.eye(taps, dtype=dtype).reshape(taps, 1, *kernel_size)
    return cai.tensor_constant(one.repeat(channels, 1, 1, 1), "taps")


def _summed(cells: Value, slides: Sequence[Slide], extents: Sequence[int]) -> Value:
    """Add up `[batch, channel, tap, row, column]`, each tap at its places among zeros."""
    total: Value | None = None
    places = itertools.product(*(range(0, s.kernel * s.dilation, s.dilation) for s in slides))
    for tap, firsts in enumerate(places):
        part = cai.shrink_dims(cai.slice_axis(cells, 2, tap, tap + 1), [2])
        sides: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
        for axis, (first, slide, extent) in enumerate(zip(firsts, slides, extents, strict=True), 2):
            part = stuff_zeros(part, axis, slide.stride)
            room = extent + 2 * slide.padding - first
            sides.append((first, shapes.sub(room, cai.size(part, axis))))
        placed = cai.pad(part, sides)
        total = placed if total is None else cai.add(total, placed)
    assert total is not None
    starts = [0, 0, *(slide.padding for slide in slides)]
    ends = [s.padding + extent for s, extent in zip(slides, extents, strict=True)]
    return cai.slice_(total, starts, [*cai.whole(total)[:2], *ends])


_DIAGONALS = [
    case(f32(3, 4)),
    case(f32(3, 4), 1),
    case(f32(3, 4), -2),
    case(f32(2, 3, 4), 0, 1, 2),
    case(f16(2, 3, 4), 1, -1, 0),
    case(i32(4, 2), -1),
    case(b1(3, 3)),
    case(c64(3, 3)),
]


@lowers(aten.diagonal.default, cases=_DIAGONALS)
def diagonal(ctx: Ctx, x: Value, offset: int, dim1: Axis, dim2: Axis) -> Value:
    rows, _ = _rows_last(x, dim1, dim2)
    start, end, stride = _steps(rows, ctx, offset)
    return cai.slice_axis(_joined(rows), rows.type.rank - 2, start, end, stride)


@lowers(
    aten.diagonal_scatter.default,
    cases=[
        case(f32(3, 4), f32(3, fixed=True)),
        case(f32(3, 4), f32(2, fixed=True), 2, static_only="the update has the diagonal's size"),
        case(f16(2, 3, 4), f16(3, 1), 1, -1, 0, static_only="the update has the diagonal's size"),
        case(i32(4, 2), i32(2), -1, static_only="the update has the diagonal's size"),
    ],
)
def diagonal_scatter(ctx: Ctx, x: Value, src: Value, offset: int, dim1: Axis, dim2: Axis) -> Value:
    rows, order = _rows_last(x, dim1, dim2)
    start, _, stride = _steps(rows, ctx, offset)
    flat, last = _joined(rows), rows.type.rank - 2
    count = cai.size(src, src.type.rank - 1)
    end = shapes.add(start, shapes.add(shapes.mul(shapes.sub(count, 1), stride), 1))
    starts: list[Dim] = [0] * last + [start]
    ends: list[Dim] = [*cai.whole(flat)[:last], end]
    written = cai.slice_update(flat, src, starts, ends, [1] * last + [stride])
    turned = cai.reshape(written, cai.sizes(rows))
    return cai.transpose(turned, [order.index(a) for a in range(len(order))])


def _rows_last(x: Value, dim1: int, dim2: int) -> tuple[Value, list[int]]:
    rest = [a for a in range(x.type.rank) if a not in (dim1, dim2)]
    order = [*rest, dim1, dim2]
    return cai.transpose(x, order), order


def _joined(rows: Value) -> Value:
    *rest, height, width = cai.sizes(rows)
    return cai.reshape(rows, [*rest, shapes.mul(height, width)])


def _steps(rows: Value, ctx: Ctx, offset: int) -> tuple[Dim, Dim, Dim]:
    """Return start, end and step of a diagonal in a flattened matrix; the step is width + 1."""
    height, width = cai.sizes(rows)[-2:]
    start = offset if offset >= 0 else shapes.mul(-offset, width)
    below = height if offset >= 0 else shapes.add(height, offset)
    beside = shapes.sub(width, offset) if offset >= 0 else width
    stride = shapes.add(width, 1)
    count = shapes.minimum(below, beside)
    end = shapes.add(start, shapes.add(shapes.mul(shapes.sub(count, 1), stride), 1))
    return start, end, stride


@lowers(
    aten.view.dtype,
    aten.view_copy.dtype,
    ignore=("dtype",),  # it is in ctx.out
    cases=[
        case(i8(4), torch.uint8),
        case(u8(4, values=(0, 127, 128, 255)), torch.int8),
        case(b1(4), torch.uint8),
        case(f32(4), torch.float32),
    ],
)
def view_dtype(ctx: Ctx, x: Value) -> Value:
    """Cast between integers of equal width: torch's cast wraps, so the bits stay the same."""
    source, target = cai.dtype(x), ctx.out_dtype
    if source == target:
        return x
    integers = not (source.is_floating_point or source.is_complex or target.is_floating_point)
    if not integers or source.itemsize != target.itemsize or target == torch.bool:
        ctx.refuse(f"a view of {source} as {target} is not supported")
    return cai.cast(x, target)


@lowers(
    aten.view_as_real.default,
    aten.view_as_real_copy.default,
    cases=[case(c64(2, 3)), case(c64())],
)
def view_as_real(ctx: Ctx, x: Value) -> Value:
    parts = [cai.expand_dims(p, [x.type.rank]) for p in (cai.real_part(x), cai.imaginary_part(x))]
    return cai.concat(x.type.rank, parts)


@lowers(
    aten.view_as_complex.default,
    aten.view_as_complex_copy.default,
    cases=[case(f32(2, 3, 2, fixed=True)), case(f32(2))],
)
def view_as_complex(ctx: Ctx, x: Value) -> Value:
    last = x.type.rank - 1
    return cai.create_complex(
        *(cai.shrink_dims(cai.slice_axis(x, last, i, i + 1), [last]) for i in (0, 1))
    )
