"""Lower eig: Hessenberg reduction, complex shifted QR, then back substitution.

The order of the eigenvalues and the phase of the eigenvectors differ from LAPACK's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten, while_loop_op
from .._lib.loops import Step, column, conjugated, copied, only_real, place, row, static_size, steps

_SWEEPS = 30  # per row, as LAPACK allows; usually two or three suffice
_EPSILON = 1.2e-7


def _hessenberg(matrix: Tensor) -> list[Tensor]:
    """Reduce to Hessenberg form by reflections; return it and their product."""
    rows = matrix.shape[-1]

    def body(k: Step, matrix: Tensor, basis: Tensor) -> list[Tensor]:
        positions = torch.arange(rows)
        given = torch.where(positions > k, column(matrix, k), 0.0)
        first = given.index_select(-1, place(k + 1))
        length = torch.linalg.vector_norm(given, dim=-1, keepdim=True)
        vector = torch.where(
            positions == k + 1, first + torch.where(first < 0, -length, length), given
        )
        square = (vector * vector).sum(-1, keepdim=True)
        scaled = vector * (2 / torch.where(square == 0, 1.0, square))
        left, right = scaled.unsqueeze(-1), vector.unsqueeze(-2)
        matrix = matrix - left * (right @ matrix)
        matrix = matrix - (matrix @ left) * right
        return [matrix, basis - (basis @ left) * right]

    identity = torch.eye(rows, dtype=matrix.dtype).expand(matrix.shape)
    return steps(max(rows - 2, 0), body, [matrix, identity])


def _pick(matrix: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Return one element of each matrix, at its own position."""
    last = matrix.shape[-1] - 1
    flat = down.clamp(0, last) * (last + 1) + across.clamp(0, last)
    return matrix.flatten(-2).gather(-1, flat)


def _shift(matrix: Tensor, end: Tensor, exceptional: Tensor) -> Tensor:
    """Return Wilkinson's shift: the eigenvalue of the last active 2x2 block nearest its corner."""
    a, b = (_pick(matrix, end - 1, end - i) for i in (1, 0))
    c, d = (_pick(matrix, end, end - i) for i in (1, 0))
    half = (a - d) / 2
    root = (half * half + b * c).sqrt()
    near, far = half + root, half - root
    nearer = torch.where(near.abs() < far.abs(), near, far)
    return torch.where(exceptional, d + c.abs() * 0.75, d + nearer)


def _block(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and last row of the lowest block that is not yet triangular."""
    rows = matrix.shape[-1]
    size = matrix.diagonal(dim1=-2, dim2=-1).abs()
    below = matrix.diagonal(-1, dim1=-2, dim2=-1).abs()
    least = _EPSILON * (size[..., 1:] + size[..., :-1])
    positions = torch.arange(1, rows)
    coupled = below > least
    end = torch.where(coupled, positions, 0).amax(-1, keepdim=True)
    start = torch.where(~coupled & (positions <= end), positions, 0).amax(-1, keepdim=True)
    return start, end


def _rotate_rows(matrix: Tensor, j: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate rows `j` and `j + 1`."""
    positions = torch.arange(matrix.shape[-2]).unsqueeze(-1)
    first, second = row(matrix, j).unsqueeze(-2), row(matrix, j + 1).unsqueeze(-2)
    cosine, sine = cosine.unsqueeze(-1), sine.unsqueeze(-1)
    upper = cosine * first + sine * second
    lower = cosine * second - conjugated(sine) * first
    return torch.where(positions == j, upper, torch.where(positions == j + 1, lower, matrix))


def _rotation(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the rotation that maps `(x, y)` to `(r, 0)`."""
    length = (x.abs() * x.abs() + y.abs() * y.abs()).sqrt()
    is_zero = length == 0
    safe = torch.where(is_zero, 1.0, length)
    phase = torch.where(x.abs() == 0, torch.ones_like(x), torch.sgn(x))
    cosine = torch.where(is_zero, 1.0, x.abs() / safe)
    return cosine, phase * conjugated(y) / safe


def _step(
    k: Tensor, matrix: Tensor, basis: Tensor, start: Tensor, end: Tensor, shift: Tensor
) -> tuple[Tensor, ...]:
    """Apply one rotation; the first one of a sweep selects the block and the shift."""
    rows = matrix.shape[-1]
    j, sweep = k % (rows - 1), k // (rows - 1)
    new_start, new_end = _block(matrix)
    sweep_starts = j == 0
    start, end = (
        torch.where(sweep_starts, new_start, start),
        torch.where(sweep_starts, new_end, end),
    )
    shift = torch.where(sweep_starts, _shift(matrix, end, sweep % 10 == 9), shift)
    here = j.reshape(1).expand(start.shape)
    at_start = here == start
    x = torch.where(at_start, _pick(matrix, here, here) - shift, _pick(matrix, here, here - 1))
    y = torch.where(at_start, _pick(matrix, here + 1, here), _pick(matrix, here + 1, here - 1))
    cosine, sine = _rotation(x, y)
    active = (here >= start) & (here < end)
    cosine, sine = torch.where(active, cosine, 1.0), torch.where(active, sine, 0.0)
    matrix = _rotate_rows(matrix, j, cosine, sine)
    matrix = _rotate_rows(matrix.mT, j, cosine, conjugated(sine)).mT
    basis = _rotate_rows(basis.mT, j, cosine, conjugated(sine)).mT
    state = matrix, basis, start, end, shift
    return (k + 1, *map(copied, state))


def _schur(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Schur form: a similar triangular matrix, and its unitary basis."""
    rows = matrix.shape[-1]
    near, basis = (x.to(x.dtype.to_complex()) for x in _hessenberg(matrix))
    if rows == 1:
        return near, basis
    limit = _SWEEPS * rows * (rows - 1)

    def continues(k: Tensor, matrix: Tensor, *_: Tensor) -> Tensor:
        return (k < limit) & ((k % (rows - 1) != 0) | (_block(matrix)[1] > 0).any())

    positions = torch.zeros((*matrix.shape[:-2], 1), dtype=torch.int64)
    shift = torch.zeros((*matrix.shape[:-2], 1), dtype=near.dtype)
    start = torch.zeros((), dtype=torch.int64)
    carried = start, copied(near), copied(basis), positions, copied(positions), shift
    found = while_loop_op(continues, _step, carried, ())
    return found[1], found[2]


def _vectors(triangle: Tensor, basis: Tensor) -> Tensor:
    """Return unit eigenvectors, by back substitution in the triangular matrix."""
    rows = triangle.shape[-1]
    values = triangle.diagonal(dim1=-2, dim2=-1)
    size = torch.linalg.vector_norm(triangle, dim=(-2, -1)).unsqueeze(-1)
    least = (_EPSILON * size).clamp(min=1e-30)

    def body(k: Step, found: Tensor, *given: Tensor) -> list[Tensor]:
        triangle, values, least = given
        at = rows - 2 - k
        positions = torch.arange(rows)
        right = torch.where(positions > at, row(triangle, at), 0.0)
        total = (right.unsqueeze(-2) @ found).squeeze(-2)
        gap = values - values.index_select(-1, place(at))
        gap = torch.where(gap.abs() < least, least.to(gap.dtype), gap)
        updated = torch.where(positions > at, total / gap, row(found, at))
        return [torch.where((positions == at).unsqueeze(-1), updated.unsqueeze(-2), found)]

    identity = torch.eye(rows, dtype=triangle.dtype).expand(triangle.shape)
    found = steps(rows - 1, body, [identity], [triangle, values, least])[0]
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
