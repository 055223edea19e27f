"""Steps that move elements: views, slices, joins, gathers, scatters."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from choices import Choices
from pool import Step
from steps import has_axes, is_bool, is_integer, is_number, makes


def _moved(name: str, fn, *operands: int) -> Step:
    return Step(name, fn, operands, exact=True)


@makes
def reshape(choose: Choices) -> Step | None:
    place = choose.value()
    if place is None:
        return None
    count, shape = choose.eager(place).numel(), []
    left = count
    while left > 1 and len(shape) < 3:
        factors = [f for f in range(1, left + 1) if left % f == 0]
        shape.append(choose.one_of(factors))
        left //= shape[-1]
    shape.append(left)
    if choose.flag():
        shape.insert(choose.number(0, len(shape)), 1)
    if count and choose.flag():
        shape[choose.number(0, len(shape) - 1)] = -1
    return _moved(f"reshape {shape}", lambda x: x.reshape(shape), place)


@makes
def permute(choose: Choices) -> Step | None:
    place = choose.value()
    if place is None:
        return None
    left = list(range(choose.eager(place).dim()))
    order = [left.pop(choose.number(0, len(left) - 1)) for _ in range(len(left))]
    return _moved(f"permute {order}", lambda x: x.permute(order), place)


@makes
def axis_view(choose: Choices) -> Step | None:
    """Apply a view op along one or two axes."""
    place = choose.value(has_axes)
    if place is None:
        return None
    a, b, k = choose.axis(place), choose.axis(place), choose.number(-3, 3)
    size = choose.eager(place).shape[a]
    table = {
        "transpose": lambda x: x.transpose(a, b),
        "movedim": lambda x: x.movedim(a, b),
        "squeeze": lambda x: x.squeeze(a),
        "flip": lambda x: x.flip([a]),
        "flip_all": lambda x: x.flip(list(range(x.dim()))),
        "roll": lambda x: x.roll(k, a),
        "roll_flat": lambda x: x.roll(k),
        "select": lambda x: x.select(a, k),
        "diagonal": lambda x: x.diagonal(k, a, b),
        "unfold": lambda x: x.unfold(a, min(2, size), 1 + abs(k)),
        "flatten": lambda x: x.flatten(),
        "last_chunk": lambda x: x.chunk(2, a)[-1],
        "first_split": lambda x: x.split(1 + abs(k), a)[0],
        "repeat_interleave": lambda x: x.repeat_interleave(2, a),
        "rot90": lambda x: x.rot90(k, [a, b]),
    }
    name = choose.one_of(list(table))
    return _moved(f"{name} {a} {b} {k}", table[name], place)


@makes
def slice_(choose: Choices) -> Step | None:
    """Slice; bounds may be out of range or negative, and the result may be empty."""
    place = choose.value(has_axes)
    if place is None:
        return None
    ends = [None, *range(-4, 6)]
    parts = [
        slice(choose.one_of(ends), choose.one_of(ends), choose.number(1, 3))
        if choose.flag()
        else slice(None)
        for _ in range(choose.eager(place).dim())
    ]
    return _moved(f"slice {parts}", lambda x: x[tuple(parts)], place)


@makes
def subscript(choose: Choices) -> Step | None:
    place = choose.value(lambda h: h.eager.dim() > 1 and h.eager.numel() > 0)
    if place is None:
        return None
    first, second = choose.eager(place).shape[:2]
    at = [choose.number(-first, first - 1) for _ in range(3)]
    along = [choose.number(-second, second - 1) for _ in range(3)]
    table = {
        "[list]": lambda x: x[at],
        "[:, list]": lambda x: x[:, along],
        "[list, list]": lambda x: x[at, along],
        "[None, ..., list]": lambda x: x[None, at],
        "[..., None]": lambda x: x[..., None],
        "[int, None, :]": lambda x: x[at[0], None],
    }
    name = choose.one_of(list(table))
    return _moved(f"{name} {at} {along}", table[name], place)


@makes
def grown(choose: Choices) -> Step | None:
    """Expand, repeat, pad or unsqueeze."""
    place = choose.value()
    if place is None:
        return None
    rank, k = choose.eager(place).dim(), choose.number(-2, 3)
    at, amount = choose.number(-rank - 1, rank), choose.scalar()
    table = {
        "unsqueeze": lambda x: x.unsqueeze(at),
        "expand": lambda x: x.expand(2, *x.shape),
        "expand_ones": lambda x: x.unsqueeze(at).expand(
            *[3 if i == at % (rank + 1) else s for i, s in enumerate(x.unsqueeze(at).shape)]
        ),
        "repeat": lambda x: x.repeat(2, *([1] * rank)),
        "tile": lambda x: x.tile(2),
        "pad": lambda x: F.pad(x, (1, k), value=amount),
        "pad_replicate": lambda x: F.pad(x[None, None].flatten(1, -2), (1, 2), mode="replicate"),
        "tril": lambda x: x.tril(k),
        "triu": lambda x: x.triu(k),
        "atleast_3d": torch.atleast_3d,
        "full_like": lambda x: torch.full_like(x, 2) + x,
    }
    name = choose.one_of(list(table))
    return _moved(f"{name} {at} {k} {amount}", table[name], place)


@makes
def joined(choose: Choices) -> Step | None:
    """Concatenate two values of any two dtypes."""
    place = choose.value(has_axes)
    if place is None:
        return None
    axis, shape = choose.axis(place), choose.eager(place).shape
    along = axis % len(shape)

    def fits(operand) -> bool:
        other = operand.eager.shape
        return len(other) == len(shape) and all(
            a == b or i == along for i, (a, b) in enumerate(zip(shape, other, strict=True))
        )

    other = choose.value(fits)
    table = {
        "cat": lambda a, b: torch.cat([a, b], axis),
        "cat_twice": lambda a, b: torch.cat([a, b, a], axis),
        "stack": lambda a, b: torch.stack([a, b.to(a.dtype)], axis),
        "hstack": lambda a, b: torch.hstack([a, b]),
    }
    name = choose.one_of(list(table))
    return _moved(f"{name} {axis}", table[name], place, other)


@makes
def gathered(choose: Choices) -> Step | None:
    """Gather at indices that the graph computes, brought into range."""
    place = choose.value(lambda h: has_axes(h) and h.eager.numel() > 0)
    index = choose.value(is_integer)
    if place is None or index is None:
        return None
    axis = choose.axis(place)
    size = choose.eager(place).shape[axis]

    def inside(i):
        return (i.long() % size).flatten()

    def spread(x, i):
        shape = [1] * x.dim()
        shape[axis] = -1
        return (
            inside(i)
            .reshape(shape)
            .expand([-1 if d == axis % x.dim() else s for d, s in enumerate(x.shape)])
        )

    table = {
        "index_select": lambda x, i: x.index_select(axis, inside(i)),
        "gather": lambda x, i: x.gather(axis, spread(x, i)),
        "take_along_dim": lambda x, i: x.take_along_dim(spread(x, i), axis),
        "index": lambda x, i: x.movedim(axis, 0)[i.long() % size],
        "take": lambda x, i: x.take(i.long() % x.numel()),
        "embedding": lambda x, i: F.embedding(
            i.long() % x.shape[0], x.reshape(x.shape[0], math.prod(x.shape[1:]))
        ),
        "index_fill": lambda x, i: x.index_fill(axis, inside(i), 1),
    }
    name = choose.one_of(list(table))
    return _moved(f"{name} {axis}", table[name], place, index)


@makes
def scattered(choose: Choices) -> Step | None:
    """Scatter: sums at indices that may repeat, copies at unique indices."""
    place = choose.value(lambda h: has_axes(h) and h.eager.numel() > 0 and is_number(h))
    if place is None:
        return None
    axis = choose.axis(place)
    size = choose.eager(place).shape[axis]
    places = [choose.number(-size, size - 1) for _ in range(choose.number(1, 4))]
    several = torch.tensor(places) % size
    single = several[:1]

    def wide(x, at):
        shape = [1] * x.dim()
        shape[axis] = -1
        return at.reshape(shape).expand(
            [-1 if d == axis % x.dim() else s for d, s in enumerate(x.shape)]
        )

    table = {
        "index_add": lambda x: x.index_add(axis, several, x.index_select(axis, several), alpha=2),
        "scatter_add": lambda x: x.scatter_add(
            axis, wide(x, several), x.index_select(axis, several)
        ),
        "amax": lambda x: x.scatter_reduce(
            axis, wide(x, several), x.flip([axis]).index_select(axis, several), "amax"
        ),
        "index_copy": lambda x: x.index_copy(axis, single, x.flip([axis]).narrow(axis, 0, 1)),
        "scatter": lambda x: x.scatter(axis, wide(x, single), 2),
        "index_put": lambda x: x.index_put((several % x.shape[0],), x[:1], accumulate=True),
        "slice_scatter": lambda x: x.slice_scatter(x.flip([axis]).narrow(axis, 0, 1), axis, 0, 1),
        "select_scatter": lambda x: x.select_scatter(x.select(axis, -1), axis, 0),
    }
    name = choose.one_of(list(table))
    return _moved(f"{name} {axis} {several.tolist()}", table[name], place)


@makes
def written(choose: Choices) -> Step | None:
    """Assign to a part of a copy; export makes it functional."""
    place = choose.value(lambda h: has_axes(h) and h.eager.numel() > 0)
    if place is None:
        return None
    scalar, size = choose.scalar(), choose.eager(place).shape[0]
    start = choose.number(-size, size - 1)

    def part(x):
        y = x.clone()
        y[start:] = scalar
        return y

    def one(x):
        y = x.clone()
        y[start] = x[0]
        return y

    def masked(x):
        y = x.clone()
        y[..., ::2] = y[..., ::2] * 2
        return y

    def inplace(x):
        y = x.clone()
        y.narrow(0, 0, 1).zero_()
        return y

    fn = choose.one_of([part, one, masked, inplace])
    return _moved(f"{fn.__name__} {start} {scalar}", fn, place)


@makes
def selected(choose: Choices) -> Step | None:
    """Select by a mask."""
    mask = choose.value(lambda h: is_bool(h) and has_axes(h))
    if mask is None:
        return None
    shape = choose.eager(mask).shape
    place = choose.value(lambda h: h.eager.shape == shape)
    table = {
        "masked_scatter": lambda m, x: x.masked_scatter(m, x.flip(list(range(x.dim())))),
        "put_mask": lambda m, x: torch.where(m, x, x.flip([0])),
        "times_mask": lambda m, x: x * m,
    }
    name = choose.one_of(list(table))
    return _moved(name, table[name], mask, place)
