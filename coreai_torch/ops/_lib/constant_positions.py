"""Elements at constant positions of an axis, without a gather: slices, or a product."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Value

LARGEST_MATRIX = 1 << 24  # elements of a constant matrix: 64 MB in float32
_LARGEST_RANK = 5  # of the neural engine
_MOST_PARTS = 64
_MOST_COPIES = 8  # of an element, if some of them are dropped again


def pick(x: Value, axis: int, positions: Sequence[int], most: int = _MOST_PARTS) -> Value | None:
    """Return the elements at `positions`, which are not negative, by slices and broadcasts.

    Return None if it takes more than `most` slices, or if there are no positions.
    """
    if not positions or _is_empty(x):
        return None
    places = list(positions)
    if places == list(range(x.type.shape[axis])):
        return x
    if len(places) > 1 and (copied := _copied(x, axis, places)):
        return copied
    runs = _runs(places)
    if len(runs) > most:
        return None
    different = dict.fromkeys(map(tuple, runs))
    falling = [run for run in different if run[0] > run[-1]]
    parts = {run: _ranged(x, axis, run) for run in different if run not in falling}
    if len(falling) > 1 and x.type.shape[axis] > 0:  # one reverse for all
        last, backwards = x.type.shape[axis] - 1, cai.reverse(x, [axis])
        parts |= {run: _ranged(backwards, axis, [last - p for p in run]) for run in falling}
    else:
        parts |= {run: _ranged(x, axis, run) for run in falling}
    return cai.concat(axis, [parts[tuple(run)] for run in runs])


def _is_empty(x: Value) -> bool:
    return cai.may_be_empty(x) or 0 in x.type.shape


def _copied(x: Value, axis: int, places: list[int]) -> Value | None:
    """Return elements that stand several times each, as in an enlarged image."""
    extent = x.type.shape[axis]
    if extent < 1:
        return None
    common = math.gcd(len(places), extent)
    times, step = len(places) // common, extent // common
    if times == 1 or (step > 1 and times > _MOST_COPIES):
        return None
    first = places[0] * times
    for start in range(first, first + times):
        if places == [(start + i * step) // times for i in range(len(places))]:
            end = start + step * (len(places) - 1) + 1
            return _sliced(repeat(x, axis, times), axis, start, end, step)
    return None


def repeat(x: Value, axis: int, times: int) -> Value:
    """Repeat each element along `axis`: a broadcast, which runs on every unit of a device."""
    dims = cai.sizes(x)
    if times == 1:
        return x
    if x.type.shape[axis] == 1:
        return cai.broadcast_to(x, [*dims[:axis], times, *dims[axis + 1 :]])
    before, after = dims[:axis], dims[axis + 1 :]
    if len(dims) == _LARGEST_RANK:
        x = cai.reshape(x, [shapes.product(before), dims[axis], *after])
    first = x.type.rank - len(after)
    wide = [*cai.sizes(x)[:first], times, *after]
    copies = cai.broadcast_to(cai.expand_dims(x, [first]), wide)
    return cai.reshape(copies, [*before, shapes.mul(dims[axis], times), *after])


def _runs(places: list[int]) -> list[list[int]]:
    """Split positions into runs of one step, each as long as possible."""
    runs: list[list[int]] = []
    for place in places:
        run = runs[-1] if runs else []
        if not run or (len(run) > 1 and place - run[-1] != run[1] - run[0]):
            runs.append([place])
        else:
            run.append(place)
    return runs


def _ranged(x: Value, axis: int, run: Sequence[int]) -> Value:
    """Return the elements at positions of one step, which may be 0 or negative."""
    low, high = min(run), max(run)
    step = abs(run[1] - run[0]) if len(run) > 1 else 1
    if step == 0:
        one = cai.slice_axis(x, axis, low, low + 1)
        dims = list(cai.sizes(one))
        return cai.broadcast_to(one, [*dims[:axis], len(run), *dims[axis + 1 :]])
    part = _sliced(x, axis, low, high + 1, step)
    return cai.reverse(part, [axis]) if run[0] > run[-1] else part


def _sliced(x: Value, axis: int, start: int, end: int, step: int) -> Value:
    if (start, end, step) == (0, x.type.shape[axis], 1):
        return x
    return cai.slice_axis(x, axis, start, end, step)


def multiply(x: Value, axis: int, matrix: torch.Tensor) -> Value:
    """Return `x` with a constant matrix applied along `axis`: each row gives one element."""
    dtype = cai.dtype(x)
    if dtype == torch.bfloat16:  # the runtime (1.0.0b3) accumulates it in bfloat16
        return cai.cast(multiply(cai.cast(x, torch.float32), axis, matrix), dtype)
    weights = _rounded(matrix, dtype)
    if axis == x.type.rank - 1:
        return cai.matmul(x, cai.tensor_constant(weights.T.contiguous()))
    if axis == x.type.rank - 2:
        return cai.matmul(cai.tensor_constant(weights), x)
    dims = list(cai.sizes(x))
    rows = cai.reshape(x, [*dims[: axis + 1], shapes.product(dims[axis + 1 :])])
    moved = cai.matmul(cai.tensor_constant(weights), rows)
    return cai.reshape(moved, [*dims[:axis], len(matrix), *dims[axis + 1 :]])


def _rounded(matrix: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix in a dtype; rows keep their sums, so that equal elements stay equal."""
    weights = matrix.to(dtype).contiguous()
    if dtype != torch.float16:
        return weights
    total = matrix.double().sum(1, keepdim=True)
    largest = weights.abs().argmax(1, keepdim=True)
    rest = weights.double().scatter(1, largest, 0.0).sum(1, keepdim=True)
    return weights.scatter(1, largest, (total - rest).to(dtype))
