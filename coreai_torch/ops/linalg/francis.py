"""Francis' double-shift QR iteration of Hessenberg matrices.

A sweep moves a bulge from the first to the last row of a block that does not fall apart, by a
reflection of three rows and columns in each step. All matrices of a batch take the same steps;
where a matrix has no bulge, its elements below the diagonal are zero, and so is the reflection.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Value

_EPSILON = 1.2e-7
# An element below the diagonal is compared with its neighbors on the diagonal, or with these parts
# of the norm. Where all of them are rounding errors, a bulge can vanish before the end.
_LEAST_SIZE, _LEAST_SIZE_IF_STUCK = 1e-10, 0.1
_LEAST_TAIL = 1e-35  # squared; smaller elements are set to zero without a reflection
_SWEEPS = 30  # per row, as LAPACK allows; usually one or two suffice
_PATIENCE = 10  # sweeps without a deflation before an exceptional shift
_BEFORE, _AFTER = 1, 2  # rows of zeros around a matrix, so that all steps have three rows


def mask(x: torch.Tensor) -> Value:
    """Return a constant of float32."""
    return cai.tensor_constant(x.to(torch.float32), "mask")


def as_number(condition: Value) -> Value:
    return cai.cast(condition, torch.float32)


def quasi_triangular(matrix: Value, basis: Sequence[Value] = ()) -> tuple[Value, list[Value]]:
    """Return similar matrices with blocks of one and two rows on the diagonal, NaN on failure.

    `matrix` is `[batch, rows, rows]`, in Hessenberg form and with norms of about 1. The reflections
    are applied to the rows of each `basis`.
    """
    rows = matrix.type.shape[-1]
    if rows < 3:
        return matrix, list(basis)
    around, none = (_BEFORE, _AFTER), (0, 0)
    work = cai.concat(2, [cai.pad(matrix, [none, none, around]), *basis])
    last, work = _iterate(cai.pad(work, [none, around, none]))
    nan = cai.where(cai.greater(last, 0.0), float("nan"), cai.like(last, 0.0))
    work = cai.add(cai.slice_axis(work, 1, _BEFORE, _BEFORE + rows), nan)
    found = [cai.slice_axis(work, 2, _BEFORE, _BEFORE + rows)]
    side = rows + _BEFORE + _AFTER
    found += [
        cai.slice_axis(work, 2, side + i * rows, side + (i + 1) * rows) for i in range(len(basis))
    ]
    return found[0], found[1:]


def _iterate(work: Value) -> tuple[Value, Value]:
    """Sweep until no matrix has a block of more than two rows; return the last rows of such.

    `work` has the matrix and the basis side by side.
    """
    zeros = cai.zeros(work, [cai.size(work, 0), 1, 1])

    def continues(state: Sequence[Value]) -> Value:
        is_left = cai.any_one(cai.greater(state[2], 0.0))
        return cai.logical_and(is_left, cai.less(state[0], _SWEEPS * work.type.shape[1]))

    def body(state: Sequence[Value]) -> list[Value]:
        k, age, before, work = state
        is_stuck = cai.greater(age, float(_PATIENCE))
        work, start, last = _deflate(work, is_stuck)
        first = _first_column(work, start, last, is_stuck)
        waits = cai.logical_and(cai.equal(last, before), cai.logical_not(is_stuck))
        age = cai.where(waits, cai.add(age, 1.0), 0.0)
        return [cai.add(k, 1), age, last, _sweep(work, start, last, first)]

    return tuple(graph.loop([cai.i32(0), zeros, cai.add(zeros, 1.0), work], continues, body)[2:])


def _deflate(work: Value, is_stuck: Value) -> tuple[Value, Value, Value]:
    """Remove negligible elements below the diagonal; return first and last row of a block.

    It is the lowest one of more than two rows. Without one, the last row is 0.
    """
    side, width = work.type.shape[1:]
    identity, positions = torch.eye(side, width), mask(torch.arange(side).reshape(1, -1, 1))
    is_below, shift = identity.roll(1, 0), mask(torch.eye(side).roll(1, 0))
    is_below[0] = 0
    size, below = (
        cai.abs(cai.reduce_sum(cai.mul(work, mask(m)), [2])) for m in (identity, is_below)
    )
    least = cai.maximum(cai.mul(as_number(is_stuck), _LEAST_SIZE_IF_STUCK), _LEAST_SIZE)
    least = cai.mul(cai.maximum(cai.add(size, cai.matmul(shift, size)), least), _EPSILON)
    couples = as_number(cai.greater(below, least))
    kept = torch.cat([torch.ones(side, side).triu(), torch.ones(side, width - side)], 1)
    work = cai.mul(work, cai.add(mask(kept), cai.mul(couples, mask(is_below))))
    both = cai.mul(couples, cai.matmul(shift, couples))
    last = cai.reduce_max(cai.mul(both, positions), [1])
    is_start = cai.logical_not(
        cai.logical_or(cai.greater(couples, 0.0), cai.greater(positions, last))
    )
    start = cai.reduce_max(cai.mul(as_number(is_start), positions), [1])
    return work, cai.where(cai.greater(last, 0.0), start, float(side)), last


def _first_column(work: Value, start: Value, last: Value, is_stuck: Value) -> Value:
    """Return the first column of the product of both shifted matrices, `[batch, 3, 1]`.

    The shifts are the eigenvalues of the last two rows of the block.
    """
    side = work.type.shape[1]
    places = [cai.add(last, float(i)) for i in (-2, -1, 0)]
    places += [cai.add(start, float(i)) for i in (0, 1, 2)]
    positions = mask(torch.arange(side).reshape(1, 1, -1))
    rows = as_number(cai.equal(cai.concat(1, places), positions))
    near = cai.matmul(
        cai.matmul(rows, cai.slice_axis(work, 2, 0, side)), cai.transpose(rows, [0, 2, 1])
    )

    def at(i: int, j: int) -> Value:
        return cai.slice_axis(cai.slice_axis(near, 1, i, i + 1), 2, j, j + 1)

    a, d, product = at(1, 1), at(2, 2), cai.mul(at(1, 2), at(2, 1))
    beside = cai.add(cai.abs(at(2, 1)), cai.abs(at(1, 0)))
    exceptional = cai.add(d, cai.mul(beside, 0.75))
    a, d = (cai.where(is_stuck, exceptional, v) for v in (a, d))
    product = cai.where(is_stuck, cai.mul(cai.mul(beside, beside), -0.4375), product)
    p, q, r, s, t = at(3, 3), at(3, 4), at(4, 3), at(4, 4), at(5, 4)
    first, second = cai.sub(p, a), cai.sub(p, d)
    column = [
        cai.add(cai.sub(cai.mul(first, second), product), cai.mul(q, r)),
        cai.mul(r, cai.add(first, cai.sub(s, d))),
        cai.mul(r, t),
    ]
    found = cai.concat(1, column)
    return cai.div(found, cai.maximum(cai.reduce_max(cai.abs(found), [1]), 1e-37))


def _sweep(work: Value, start: Value, last: Value, first: Value) -> Value:
    """Move bulges from the first start to the last end of a block."""
    batch, side, width = cai.sizes(work)
    begin, end = (
        cai.cast(shapes.scalar(op(x, [0, 1, 2])), torch.int32)
        for op, x in ((cai.reduce_min, start), (cai.reduce_max, last))
    )

    def body(state: Sequence[Value]) -> list[Value]:
        k, work = state
        after = shapes.add(k, 3)
        rows = cai.reshape(cai.slice_axis(work, 1, k, after), [batch, 3, width])
        column = cai.slice_axis(rows, 2, shapes.sub(k, 1), k)
        column = cai.reshape(column, [batch, 3, 1])
        column = cai.where(cai.equal(start, cai.cast(k, torch.float32)), first, column)
        reflection = _reflection(column)
        rows = cai.matmul(reflection, rows)
        work = cai.slice_update(work, rows, [0, k, 0], [batch, after, width], [1, 1, 1])
        columns = cai.reshape(cai.slice_axis(work, 2, k, after), [batch, side, 3])
        columns = cai.matmul(columns, reflection)
        work = cai.slice_update(work, columns, [0, 0, k], [batch, side, after], [1, 1, 1])
        return [cai.add(k, 1), work]

    return graph.loop([begin, work], lambda state: cai.less(state[0], end), body)[1]


def _reflection(column: Value) -> Value:
    """Return the symmetric matrix that zeroes all of `[batch, 3, 1]` but the first element."""
    is_first = torch.tensor([[[1.0], [0.0], [0.0]]])
    rest = cai.mul(column, mask(1 - is_first))
    tail = cai.reduce_sum(cai.mul(rest, rest), [1])
    first = cai.slice_axis(column, 1, 0, 1)
    norm = cai.sqrt(cai.add(cai.mul(first, first), tail))
    norm = cai.where(cai.less(first, 0.0), cai.neg(norm), norm)
    leading = cai.add(first, norm)
    vector = cai.add(rest, cai.mul(leading, mask(is_first)))
    weight = cai.where(cai.greater(tail, _LEAST_TAIL), cai.div(1.0, cai.mul(norm, leading)), 0.0)
    outer = cai.mul(vector, cai.mul(cai.reshape(vector, [cai.size(vector, 0), 1, 3]), weight))
    return cai.sub(mask(torch.eye(3)), outer)
