"""Permute and scale matrices before the QR iteration, as LAPACK does.

Without this, the eigenvalues of a triangular or a badly scaled matrix can be wrong in all digits.
LAPACK moves and scales one row at a time. Here a step moves all rows whose other elements are zero,
or scales all rows, by the fourth root of the ratio of their sums: each element is scaled twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value
from .francis import mask

_STEPS = 40
_UNIT, _LARGEST_SIZE = 1e10, 1e18  # of elements that are squared; the norm of the matrix is 1
_LEAST_SUM = 1e-30  # of squares
_LARGEST_STEP = 8 * math.log(2)
_LARGEST = 40 * math.log(2)
_CONVERGED = math.log(2) / 4


@dataclass(frozen=True)
class Balanced:
    """Matrices with permuted and scaled rows and columns."""

    matrix: Value
    _order: Value
    _factors: Value

    def restore(self, rows: Value) -> Value:
        """Scale and permute rows, as those of eigenvectors, for the original matrix."""
        ranks = cai.argsort(cai.cast(self._order, torch.float32), 1, False)
        return _take_rows(cai.mul(rows, self._factors), ranks)


def norm_of(matrix: Value) -> Value:
    """Return the greatest sum of a row of each matrix, `[batch, 1, 1]`; not zero."""
    return cai.maximum(cai.reduce_max(cai.reduce_sum(cai.abs(matrix), [2]), [1]), 1e-30)


def balance(matrix: Value) -> Balanced:
    """Balance matrices `[batch, rows, rows]` with norms of at most 1."""
    order, is_inside = _order(matrix)
    matrix = _turn(_take_rows(_turn(_take_rows(matrix, order)), order))
    inside = _take_rows(is_inside, order)
    factors = _factors(matrix, inside)
    return Balanced(cai.div(cai.mul(matrix, _turn(factors)), factors), order, factors)


def _turn(x: Value) -> Value:
    return cai.transpose(x, [0, 2, 1])


def _take_rows(x: Value, order: Value) -> Value:
    batch, rows, columns = cai.sizes(x)
    places = cai.reshape(cai.cast(order, torch.int32), [batch, rows, 1])
    return cai.gather_along_axis(x, cai.broadcast_to(places, [batch, rows, columns]), 1)


def _beside(matrix: Value) -> Value:
    """Return the magnitudes of the elements that are not on the diagonal."""
    return cai.mul(cai.abs(matrix), mask(1 - torch.eye(matrix.type.shape[-1])))


def _order(matrix: Value) -> tuple[Value, Value]:
    """Return an order that moves rows of zeros to the end and columns of zeros to the start.

    An element of the diagonal is not compared with zero. Also return which rows remain between.
    """
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    pattern = cai.cast(cai.greater(_beside(matrix), 0.0), torch.float32)

    def body(state: Sequence[Value]) -> list[Value]:
        left, key, inside, _ = state
        before = inside
        for axis, sign in ((2, 1.0), (1, -1.0)):
            # The sum of a row has the columns that remain, and the reverse.
            other = _turn(inside) if axis == 2 else inside
            sums = cai.reduce_sum(cai.mul(pattern, other), [axis])
            sums = sums if axis == 2 else _turn(sums)
            is_moved = cai.mul(inside, cai.cast(cai.less(sums, 0.5), torch.float32))
            key = cai.add(key, cai.mul(cai.mul(is_moved, left), sign))
            inside = cai.sub(inside, is_moved)
        is_changed = cai.any_one(cai.less(inside, before))
        return [cai.sub(left, 1.0), key, inside, is_changed]

    zeros = cai.zeros(matrix, [batch, rows, 1])
    count = cai.constant(float(rows), torch.float32)
    start = [count, zeros, cai.add(zeros, 1.0), cai.constant(True, torch.bool)]
    _, key, inside, _ = graph.loop(start, lambda state: state[3], body)
    places = mask(torch.arange(rows).reshape(1, rows, 1))  # the order of equal keys
    key = cai.add(cai.mul(key, float(rows)), places)
    return cai.argsort(cai.reshape(key, [batch, rows]), 1, False), inside


def _factors(matrix: Value, inside: Value) -> Value:
    """Return powers of two to multiply columns with, and to divide rows by.

    The sums of squares have the diagonal, as in LAPACK since 3.5: without it, tiny elements below
    the diagonal are scaled until they are as large as those above. The eigenvectors of a triangular
    matrix plus noise of 1e-6 then had a residual of 9e-4.
    """
    sizes = cai.mul(cai.mul(cai.abs(matrix), inside), _turn(inside))
    sizes = cai.mul(sizes, _UNIT)

    def body(state: Sequence[Value]) -> list[Value]:
        k, _, exponents = state
        scaled = cai.mul(sizes, cai.exp(cai.sub(_turn(exponents), exponents)))
        scaled = cai.minimum(scaled, _LARGEST_SIZE)
        scaled = cai.mul(scaled, scaled)
        row, column = cai.reduce_sum(scaled, [2]), _turn(cai.reduce_sum(scaled, [1]))
        row_log, column_log = (cai.log(cai.maximum(v, _LEAST_SUM)) for v in (row, column))
        can_scale = cai.greater(cai.minimum(row, column), _LEAST_SUM)
        step = cai.where(can_scale, cai.mul(cai.sub(row_log, column_log), 0.125), 0.0)
        step = cai.maximum(cai.minimum(step, _LARGEST_STEP), -_LARGEST_STEP)
        after = cai.maximum(cai.minimum(cai.add(exponents, step), _LARGEST), -_LARGEST)
        is_changed = cai.greater(cai.abs(cai.sub(after, exponents)), _CONVERGED)
        return [cai.add(k, 1), cai.any_one(is_changed), after]

    def continues(state: Sequence[Value]) -> Value:
        return cai.logical_and(state[1], cai.less(state[0], _STEPS))

    zeros = cai.zeros(matrix, cai.sizes(inside))
    start = [cai.i32(0), cai.constant(True, torch.bool), zeros]
    exponents = cai.mul(graph.loop(start, continues, body)[2], 1 / math.log(2))
    return cai.pow(cai.constant(2.0, torch.float32), cai.round(exponents))
