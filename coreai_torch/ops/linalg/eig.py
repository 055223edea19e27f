"""Lower eig: balancing, Hessenberg reduction, double-shift QR iteration, back substitution.

The order of the eigenvalues and the phase of the eigenvectors differ from LAPACK's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, case, lowers
from ...lowering.cases import f32
from ...torch_compat import aten
from .._lib.loops import only_real, static_size
from .balance import Balanced, balance, norm_of
from .francis import as_number, mask, quasi_triangular
from .triangular_eigen import diagonal_blocks, eigenvectors


def _hessenberg(matrix: Value, basis: Sequence[Value]) -> tuple[Value, list[Value]]:
    """Reduce to Hessenberg form by reflections; apply them to the rows of each `basis`."""
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    positions = mask(torch.arange(rows).reshape(1, -1, 1))

    def body(state: Sequence[Value]) -> list[Value]:
        k, matrix, *basis = state
        here = cai.add(cai.cast(k, torch.float32), 1.0)
        column = cai.slice_axis(matrix, 2, k, shapes.add(k, 1))
        column = cai.reshape(column, [batch, rows, 1])
        rest = cai.mul(column, as_number(cai.greater(positions, here)))
        is_first = as_number(cai.equal(positions, here))
        tail = cai.reduce_sum(cai.mul(rest, rest), [1])
        first = cai.reduce_sum(cai.mul(column, is_first), [1])
        norm = cai.sqrt(cai.add(cai.mul(first, first), tail))
        norm = cai.where(cai.less(first, 0.0), cai.neg(norm), norm)
        leading = cai.add(first, norm)
        vector = cai.add(rest, cai.mul(leading, is_first))
        weight = cai.where(cai.greater(tail, 1e-35), cai.div(1.0, cai.mul(norm, leading)), 0.0)
        scaled = cai.mul(vector, weight)
        across, scaled_across = (cai.reshape(v, [batch, 1, rows]) for v in (vector, scaled))
        matrix = cai.sub(matrix, cai.mul(scaled, cai.matmul(across, matrix)))
        products = cai.reduce_sum(cai.mul(matrix, across), [2])
        matrix = cai.sub(matrix, cai.mul(products, scaled_across))
        basis = [cai.sub(b, cai.mul(scaled, cai.matmul(across, b))) for b in basis]
        return [cai.add(k, 1), matrix, *basis]

    if rows > 2:
        start = [cai.i32(0), matrix, *basis]
        _, matrix, *basis = graph.loop(start, lambda s: cai.less(s[0], rows - 2), body)
    is_kept = torch.ones(rows, rows).triu(-1)
    return cai.mul(matrix, mask(is_kept)), list(basis)


@dataclass(frozen=True)
class Reduced:
    """Matrices `[batch, rows, rows]`, balanced, divided by their `norm`, in Hessenberg form."""

    given: Value
    balanced: Balanced
    norm: Value
    matrix: Value
    basis: Sequence[Value]  # the transposed basis if vectors are requested

    def restore(self, rows: Value) -> Value:
        """Return vectors of the Hessenberg form, given as rows, for the original matrix."""
        return self.balanced.restore(cai.transpose(rows, [0, 2, 1]))

    def by_qr(self) -> list[Value]:
        """Return parts of values and vectors."""
        triangle, turned = quasi_triangular(self.matrix, self.basis)
        blocks = diagonal_blocks(triangle)
        found = [blocks.real, blocks.imaginary]
        return [
            *found,
            *(v for t in turned for v in eigenvectors(triangle, self.restore(t), blocks)),
        ]


Solve = Callable[[Reduced], list[Value]]


def _eigen(x: Value, with_vectors: bool, solve: Solve) -> list[Value]:
    """Return parts of the eigenvalues `[batch, rows]`, and of the eigenvectors if requested.

    All axes before the last two become one.
    """
    rows, batch = x.type.shape[-1], shapes.product(cai.sizes(x)[:-2])
    given = cai.reshape(x, [batch, rows, rows])
    norm = norm_of(given)
    given = cai.div(given, norm)
    balanced = balance(given)
    other_norm = norm_of(balanced.matrix)
    matrix = cai.div(balanced.matrix, other_norm)
    identity = cai.broadcast_to(mask(torch.eye(rows).unsqueeze(0)), cai.sizes(matrix))
    matrix, basis = _hessenberg(matrix, [identity] if with_vectors else [])
    real, imaginary, *vectors = solve(Reduced(given, balanced, other_norm, matrix, basis))
    norm = cai.reshape(cai.mul(norm, other_norm), [batch, 1])
    return [cai.mul(real, norm), cai.mul(imaginary, norm), *vectors]


def _check(ctx: Ctx, op: str) -> None:
    """Raise ConversionError for a complex matrix or a dynamic number of rows."""
    only_real(op, ctx.fake("self"))
    static_size(op, ctx.fake("self"), -1)


def _empty(x: Value, dims: Sequence[Dim]) -> Value:
    zeros = cai.zeros(x, dims)
    return cai.create_complex(zeros, zeros)


@lowers(
    aten.linalg_eigvals.default,
    aten._linalg_eigvals.default,
    cases=[
        case(f32(2, 1, 1, fixed=True)),
        case(f32(2, 2, fixed=True, values=(2.0, 1.0, 0.0, -1.0))),
    ],
)
def linalg_eigvals(ctx: Ctx, x: Value) -> Value:
    return eigvals(ctx, x, Reduced.by_qr)


def eigvals(ctx: Ctx, x: Value, solve: Solve) -> Value:
    _check(ctx, "linalg.eigvals")
    dims = cai.sizes(x)
    if 0 in dims:
        return _empty(x, dims[:-1])
    real, imaginary = _eigen(x, False, solve)
    return cai.reshape(cai.create_complex(real, imaginary), dims[:-1])


@lowers(
    aten.linalg_eig.default,
    cases=[
        case(f32(2, 1, 1, fixed=True)),
        case(f32(2, 2, fixed=True, values=(2.0, 1.0, 0.0, -1.0))),
    ],
)
def linalg_eig(ctx: Ctx, x: Value) -> tuple[Value, Value]:
    return eig(ctx, x, Reduced.by_qr)


def eig(ctx: Ctx, x: Value, solve: Solve) -> tuple[Value, Value]:
    _check(ctx, "linalg.eig")
    dims = cai.sizes(x)
    if 0 in dims:
        return _empty(x, dims[:-1]), _empty(x, dims)
    real, imaginary, *vectors = _eigen(x, True, solve)
    values = cai.create_complex(real, imaginary)
    return cai.reshape(values, dims[:-1]), cai.reshape(cai.create_complex(*vectors), dims)
