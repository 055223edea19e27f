"""Eigenvalues of any square matrix, from the triangle that shifted rotations make of it.

The values come in another order than LAPACK gives them, and the vectors with another phase.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten, while_loop_op
from .._lib.loops import Step, column, conjugated, copied, only_real, place, row, static_size, steps

_SWEEPS = 30  # for each row, as LAPACK allows; two or three are enough as a rule
_EPSILON = 1.2e-7


def _hessenberg(matrix: Tensor) -> list[Tensor]:
    """Zeros below the first subdiagonal, by reflections, and their product."""
    rows = matrix.shape[-1]

    def body(k: Step, matrix: Tensor, basis: Tensor) -> list[Tensor]:
        places = torch.arange(rows)
        given = torch.where(places > k, column(matrix, k), 0.0)
        first = given.index_select(-1, place(k + 1))
        length = torch.linalg.vector_norm(given, dim=-1, keepdim=True)
        vector = torch.where(
            places == k + 1, first + torch.where(first < 0, -length, length), given
        )
        square = (vector * vector).sum(-1, keepdim=True)
        scaled = vector * (2 / torch.where(square == 0, 1.0, square))
        left, right = scaled.unsqueeze(-1), vector.unsqueeze(-2)
        matrix = matrix - left * (right @ matrix)
        matrix = matrix - (matrix @ left) * right
        return [matrix, basis - (basis @ left) * right]

    whole = torch.eye(rows, dtype=matrix.dtype).expand(matrix.shape)
    return steps(max(rows - 2, 0), body, [matrix, whole])


def _pick(matrix: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """One element of each matrix, at a place of its own."""
    last = matrix.shape[-1] - 1
    flat = down.clamp(0, last) * (last + 1) + across.clamp(0, last)
    return matrix.flatten(-2).gather(-1, flat)


def _shift(matrix: Tensor, end: Tensor, odd: Tensor) -> Tensor:
    """The eigenvalue of the last two rows at work that is nearer to the last element."""
    a, b = (_pick(matrix, end - 1, end - i) for i in (1, 0))
    c, d = (_pick(matrix, end, end - i) for i in (1, 0))
    half = (a - d) / 2
    root = (half * half + b * c).sqrt()
    near, far = half + root, half - root
    nearer = torch.where(near.abs() < far.abs(), near, far)
    return torch.where(odd, d + c.abs() * 0.75, d + nearer)


def _block(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """First and last row of the lowest block that is not yet a triangle."""
    rows = matrix.shape[-1]
    size = matrix.diagonal(dim1=-2, dim2=-1).abs()
    below = matrix.diagonal(-1, dim1=-2, dim2=-1).abs()
    least = _EPSILON * (size[..., 1:] + size[..., :-1])
    places = torch.arange(1, rows)
    joined = below > least
    end = torch.where(joined, places, 0).amax(-1, keepdim=True)
    start = torch.where(~joined & (places <= end), places, 0).amax(-1, keepdim=True)
    return start, end


def _turned(matrix: Tensor, j: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rows `j` and `j + 1` turned."""
    places = torch.arange(matrix.shape[-2]).unsqueeze(-1)
    first, second = row(matrix, j).unsqueeze(-2), row(matrix, j + 1).unsqueeze(-2)
    cosine, sine = cosine.unsqueeze(-1), sine.unsqueeze(-1)
    upper = cosine * first + sine * second
    lower = cosine * second - conjugated(sine) * first
    return torch.where(places == j, upper, torch.where(places == j + 1, lower, matrix))


def _rotation(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the turn that takes `(x, y)` to `(r, 0)`."""
    length = (x.abs() * x.abs() + y.abs() * y.abs()).sqrt()
    still = length == 0
    safe = torch.where(still, 1.0, length)
    phase = torch.where(x.abs() == 0, torch.ones_like(x), torch.sgn(x))
    cosine = torch.where(still, 1.0, x.abs() / safe)
    return cosine, phase * conjugated(y) / safe


def _step(
    k: Tensor, matrix: Tensor, basis: Tensor, start: Tensor, end: Tensor, shift: Tensor
) -> tuple[Tensor, ...]:
    """One rotation of a sweep; a sweep begins with looking for its block and its shift."""
    rows = matrix.shape[-1]
    j, sweep = k % (rows - 1), k // (rows - 1)
    fresh_start, fresh_end = _block(matrix)
    begins = j == 0
    start, end = torch.where(begins, fresh_start, start), torch.where(begins, fresh_end, end)
    shift = torch.where(begins, _shift(matrix, end, sweep % 10 == 9), shift)
    here = j.reshape(1).expand(start.shape)
    at_start = here == start
    x = torch.where(at_start, _pick(matrix, here, here) - shift, _pick(matrix, here, here - 1))
    y = torch.where(at_start, _pick(matrix, here + 1, here), _pick(matrix, here + 1, here - 1))
    cosine, sine = _rotation(x, y)
    active = (here >= start) & (here < end)
    cosine, sine = torch.where(active, cosine, 1.0), torch.where(active, sine, 0.0)
    matrix = _turned(matrix, j, cosine, sine)
    matrix = _turned(matrix.mT, j, cosine, conjugated(sine)).mT
    basis = _turned(basis.mT, j, cosine, conjugated(sine)).mT
    state = matrix, basis, start, end, shift
    return (k + 1, *map(copied, state))


def _schur(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A triangle that is similar to the matrix, and the basis in which it is."""
    rows = matrix.shape[-1]
    near, basis = (x.to(x.dtype.to_complex()) for x in _hessenberg(matrix))
    if rows == 1:
        return near, basis
    limit = _SWEEPS * rows * (rows - 1)

    def going_on(k: Tensor, matrix: Tensor, *_: Tensor) -> Tensor:
        return (k < limit) & ((k % (rows - 1) != 0) | (_block(matrix)[1] > 0).any())

    places = torch.zeros((*matrix.shape[:-2], 1), dtype=torch.int64)
    shift = torch.zeros((*matrix.shape[:-2], 1), dtype=near.dtype)
    start = torch.zeros((), dtype=torch.int64)
    carried = start, copied(near), copied(basis), places, copied(places), shift
    found = while_loop_op(going_on, _step, carried, ())
    return found[1], found[2]


def _vectors(triangle: Tensor, basis: Tensor) -> Tensor:
    """Unit eigenvectors, by substitution upwards in the triangle."""
    rows = triangle.shape[-1]
    values = triangle.diagonal(dim1=-2, dim2=-1)
    size = torch.linalg.vector_norm(triangle, dim=(-2, -1)).unsqueeze(-1)
    least = (_EPSILON * size).clamp(min=1e-30)

    def body(k: Step, found: Tensor, *given: Tensor) -> list[Tensor]:
        triangle, values, least = given
        at = rows - 2 - k
        places = torch.arange(rows)
        right = torch.where(places > at, row(triangle, at), 0.0)
        total = (right.unsqueeze(-2) @ found).squeeze(-2)
        gap = values - values.index_select(-1, place(at))
        gap = torch.where(gap.abs() < least, least.to(gap.dtype), gap)
        fresh = torch.where(places > at, total / gap, row(found, at))
        return [torch.where((places == at).unsqueeze(-1), fresh.unsqueeze(-2), found)]

    whole = torch.eye(rows, dtype=triangle.dtype).expand(triangle.shape)
    found = steps(rows - 1, body, [whole], [triangle, values, least])[0]
    vectors = basis @ found
    return vectors / torch.linalg.vector_norm(vectors, dim=-2, keepdim=True)


@decomposes(
    aten.linalg_eig.default,
    cases=[
        case(f32(2, 1, 1, fixed=True)),
        case(f32(2, 2, fixed=True, values=(2.0, 1.0, 0.0, -1.0))),
    ],
)
def linalg_eig(matrix: Tensor) -> tuple[Tensor, Tensor]:
    only_real("linalg.eig", matrix)
    if static_size("linalg.eig", matrix, -1) == 0:
        wide = matrix.to(matrix.dtype.to_complex())
        return wide.sum(-1), wide
    triangle, basis = _schur(matrix)
    return triangle.diagonal(dim1=-2, dim2=-1), _vectors(triangle, basis)
