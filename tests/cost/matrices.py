"""Families whose size is the number of rows of a square matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from .family import Call, Family

linalg = torch.linalg


def _regular(n: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, n) + 9 * torch.eye(n),)


def _positive(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, n)
    return x @ x.T / n + torch.eye(n), torch.randn(n, 2)


def _triangular(x: Tensor, b: Tensor) -> list[Tensor]:
    factor = linalg.cholesky(x)
    return [
        torch.cholesky_solve(b, factor),
        torch.cholesky_inverse(factor),
        linalg.solve_triangular(x.tril(), b, upper=False),
        torch.triangular_solve(b, x).solution,
    ]


def _lu(x: Tensor) -> list[Tensor]:
    factors, pivots = linalg.lu_factor(x)
    return [
        *linalg.lu(x),
        *torch.lu_unpack(factors, pivots),
        linalg.lu_solve(factors, pivots, x),
        linalg.solve(x, x),
        linalg.det(x),
        *linalg.slogdet(x),
        torch.inverse(x),
    ]


def _qr(x: Tensor) -> list[Tensor]:
    reflectors, scales = torch.geqrf(x)
    return [
        *linalg.qr(x),
        linalg.householder_product(reflectors, scales),
        torch.ormqr(reflectors, scales, x),
    ]


def _powers(n: int) -> Call:
    def run(x: Tensor) -> list[Tensor]:
        return [linalg.matrix_exp(x), linalg.matrix_power(x, 5)]

    return run, (torch.randn(n, n) / n,)


_COLUMNS = "a loop over the columns; each step changes the whole matrix"

MATRICES = (
    Family(
        "matmul of n x n",
        "n^3",
        lambda n: (torch.matmul, (torch.randn(n, n), torch.randn(n, n))),
        n=32,
        memory="n^2",
        lowers="matmul",
        sizes="both",
    ),
    Family(
        "lu, solve, inv, det of n x n",
        "n^3",
        lambda n: (_lu, _regular(n)),
        n=8,
        constants="n^2",
        memory="n^2",
        reason=_COLUMNS,
        lowers="linalg_lu_factor lu_unpack linalg_lu linalg_lu_solve linalg_solve linalg_det "
        "linalg_slogdet inverse",
        like="""linalg_lu_factor_ex _lu_with_info lu_solve _linalg_det _linalg_slogdet linalg_inv
        linalg_inv_ex _linalg_solve_ex linalg_tensorinv linalg_tensorsolve""",
    ),
    Family(
        "cholesky, triangular systems of n x n",
        "n^3",
        lambda n: (_triangular, _positive(n)),
        n=16,
        constants="n^2",
        memory="n^2",
        reason=_COLUMNS,
        lowers="""linalg_cholesky cholesky_solve cholesky_inverse linalg_solve_triangular
        triangular_solve""",
        like="linalg_cholesky_ex cholesky",
    ),
    Family(
        "qr, householder_product of n x n",
        "n^3",
        lambda n: (_qr, (torch.randn(n, n),)),
        n=16,
        constants="n^2",
        memory="n^2",
        reason=_COLUMNS,
        lowers="geqrf linalg_qr linalg_householder_product ormqr",
    ),
    Family(
        "svd, eigh of n x n",
        "n^4",
        lambda n: (linalg.eigvalsh, (torch.randn(n, n),)),
        n=8,
        constants="n^2",
        memory="n^2",
        reason="Jacobi's rotations: 5 to 10 sweeps of n rounds, each a product of n x n "
        "matrices, so the time grows with n^4 where products and not the single ops take most of "
        "it: 0.1 s for 64 x 64, 0.8 s for 128 x 128, 10 s for 256 x 256. The vectors of svd by QR",
        lowers="linalg_eigvalsh",
        like="_linalg_eigh _linalg_svd linalg_svdvals linalg_pinv",
    ),
    Family(
        "eig, eigvals of n x n",
        "n^4",
        lambda n: (linalg.eigvals, (torch.randn(n, n),)),
        n=30,
        constants="n^2",
        memory="n^2",
        reason="QR iteration: one or two sweeps for each of n rows, each of up to n steps that "
        "copy the matrix: 1 s for 128 x 128, 5 s for 256 x 256. Up to 64 rows the target has "
        "Aberth's iteration, whose steps are written out",
        lowers="linalg_eigvals",
        like="_linalg_eigvals linalg_eig",
    ),
    Family(
        "matrix_exp, matrix_power of n x n",
        "n^3",
        _powers,
        n=16,
        constants="n^2",
        memory="n^2",
        reason="products; matrix_exp squares its result in a loop",
        lowers="linalg_matrix_exp linalg_matrix_power",
        like="matrix_power",
    ),
    Family(
        "ldl_factor of n x n",
        "n^3",
        lambda n: (lambda x: linalg.ldl_factor(x @ x.mT)[:2], (torch.randn(n, n),)),
        n=8,
        constants="n^2",
        memory="n^2",
        reason="a loop over the columns, and each step passes over the whole matrix: 1.5 s for "
        "256 x 256",
        lowers="linalg_ldl_factor",
        like="linalg_ldl_factor_ex linalg_ldl_solve",
    ),
)
