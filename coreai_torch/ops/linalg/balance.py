"""Permute and scale matrices before the QR iteration, as LAPACK does.

Without this, the eigenvalues of a triangular or a badly scaled matrix can be wrong in all digits.
LAPACK moves single rows to both ends. Here the rows are nodes of a graph, elements that are not
zero its edges, and all components that reach each other become blocks of a triangular matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value
from .francis import as_number, mask

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
    _permutation: Value
    _factors: Value

    def restore(self, rows: Value) -> Value:
        """Scale and permute rows, as those of eigenvectors, for the original matrix."""
        return cai.matmul(_turn(self._permutation), cai.mul(rows, self._factors))


def norm_of(matrix: Value) -> Value:
    """Return the greatest sum of a row of each matrix, `[batch, 1, 1]`; not zero."""
    return cai.maximum(cai.reduce_max(cai.reduce_sum(cai.abs(matrix), [2]), [1]), 1e-30)


def balance(matrix: Value) -> Balanced:
    """Balance matrices `[batch, rows, rows]` with norms of at most 1."""
    permutation, is_inside = _order(matrix)
    matrix, is_inside = (
        cai.matmul(cai.matmul(permutation, x), _turn(permutation)) for x in (matrix, is_inside)
    )
    factors = _factors(matrix, is_inside)
    return Balanced(cai.div(cai.mul(matrix, _turn(factors)), factors), permutation, factors)


def _turn(x: Value) -> Value:
    return cai.transpose(x, [0, 2, 1])


def _within(x: Value, bound: float) -> Value:
    return cai.maximum(cai.minimum(x, bound), -bound)


def _order(matrix: Value) -> tuple[Value, Value]:
    """Return a permutation, and whether the rows of each element are in one component.

    A row that reaches another one, which does not reach it, reaches more rows and comes first.
    """
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    is_edge = cai.greater(cai.abs(matrix), 0.0)
    reaches = cai.maximum(as_number(is_edge), mask(torch.eye(rows)))
    for _ in range((rows - 1).bit_length()):
        reaches = cai.minimum(cai.matmul(reaches, reaches), 1.0)
    inside = cai.mul(reaches, _turn(reaches))
    here = torch.arange(rows)
    first = cai.reduce_max(cai.mul(inside, mask(rows - here)), [2])  # of rows that reach as many
    key = cai.add(cai.mul(cai.reduce_sum(reaches, [2]), float(rows + 1)), first)
    is_before = cai.tensor_constant(here < here.unsqueeze(-1), "mask")
    is_before = cai.logical_and(cai.equal(_turn(key), key), is_before)
    before = as_number(cai.logical_or(cai.greater(_turn(key), key), is_before))
    ranks = cai.reshape(cai.reduce_sum(before, [2]), [batch, 1, rows])
    return as_number(cai.equal(ranks, mask(here.reshape(1, rows, 1)))), inside


def _factors(matrix: Value, is_inside: Value) -> Value:
    """Return powers of two to multiply columns with, and to divide rows by.

    The sums of squares have the diagonal, as in LAPACK since 3.5: without it, tiny elements below
    the diagonal are scaled until they are as large as those above. The eigenvectors of a triangular
    matrix plus noise of 1e-6 then had a residual of 9e-4. All rows are scaled at once, by the
    fourth root of the ratio of their sums, because each element is scaled twice.
    """
    sizes = cai.mul(cai.mul(cai.abs(matrix), is_inside), _UNIT)

    def body(state: Sequence[Value]) -> list[Value]:
        k, _, exponents = state
        scaled = cai.mul(sizes, cai.exp(cai.sub(_turn(exponents), exponents)))
        scaled = cai.minimum(scaled, _LARGEST_SIZE)
        scaled = cai.mul(scaled, scaled)
        sums = cai.reduce_sum(scaled, [2]), _turn(cai.reduce_sum(scaled, [1]))
        row, column = (cai.log(cai.maximum(v, _LEAST_SUM)) for v in sums)
        can_scale = cai.greater(cai.minimum(*sums), _LEAST_SUM)
        step = cai.where(can_scale, cai.mul(cai.sub(row, column), 0.125), 0.0)
        after = _within(cai.add(exponents, _within(step, _LARGEST_STEP)), _LARGEST)
        is_changed = cai.greater(cai.abs(cai.sub(after, exponents)), _CONVERGED)
        return [cai.add(k, 1), cai.any_one(is_changed), after]

    def continues(state: Sequence[Value]) -> Value:
        return cai.logical_and(state[1], cai.less(state[0], _STEPS))

    zeros = cai.zeros(matrix, [cai.size(matrix, 0), matrix.type.shape[-1], 1])
    exponents = graph.loop([cai.i32(0), cai.constant(True, torch.bool), zeros], continues, body)[2]
    return cai.pow(cai.constant(2.0, torch.float32), cai.round(cai.mul(exponents, 1 / math.log(2))))
