"""Factorizations whose vectors have an arbitrary sign, and the limits of all factorizations."""

from __future__ import annotations

import pytest
import torch
from module_runner import check, convert

from coreai_torch.errors import ConversionError

DYNAMIC = torch.export.Dim.DYNAMIC


def _products(basis):
    return basis.mT @ basis


@pytest.mark.parametrize("full", [True, False], ids=["full", "reduced"])
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 6)], ids=str)
def test_singular_vectors_are_orthogonal_and_reconstruct_the_matrix(shape, full):
    def made(x):
        left, values, right = torch.linalg.svd(x, full)
        count = values.shape[-1]
        whole = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
        return whole, values, _products(left), _products(right.mT)

    check(made, (torch.rand(shape),), optimized=(True,))


def test_rank_deficient_matrix_has_a_full_basis():
    """Also for a zero matrix, where any basis is right."""

    def products(x):
        left, values, right = torch.linalg.svd(x)
        return values, _products(left), _products(right.mT)

    x = torch.rand(3, 1) @ torch.rand(1, 3)
    check(products, (torch.stack([x, torch.zeros(3, 3)]),), optimized=(True,))


def test_eigenvectors_are_orthogonal_and_reconstruct_the_matrix():
    def made(x):
        values, vectors = torch.linalg.eigh(x)
        return (vectors * values.unsqueeze(-2)) @ vectors.mT, values, _products(vectors)

    check(made, (torch.rand(2, 5, 5),), optimized=(True,))


def test_eigenvectors_of_any_matrix_satisfy_their_equation():
    """The values have no defined order; compare their sums."""

    def stretched(x):
        values, vectors = torch.linalg.eig(x)
        rest = x.to(torch.complex64) @ vectors - vectors * values.unsqueeze(-2)
        return rest, values.sum(-1), (values * values).sum(-1)

    check(stretched, (torch.rand(2, 5, 5),))


def test_dynamic_batch_of_matrices():
    def solved(x, y):
        return torch.linalg.solve(x @ x.mT + torch.eye(6), y)

    sizes = [(torch.rand(n, 6, 6), torch.rand(n, 6, 2)) for n in (2, 3)]
    check(solved, *sizes, dynamic_shapes=({0: DYNAMIC}, {0: DYNAMIC}))


def test_dynamic_matrix_size_is_rejected():
    size = torch.export.Dim("n", min=2, max=9)
    with pytest.raises(ConversionError, match=r"cholesky: a matrix whose size is[\s\S]*known when"):
        convert(torch.linalg.cholesky, (torch.eye(3),), ({0: size, 1: size},))


def test_complex_matrices_are_rejected():
    with pytest.raises(ConversionError, match=r"linalg\.svd: a complex matrix"):
        convert(torch.linalg.svdvals, (torch.rand(3, 3, dtype=torch.complex64),))


@pytest.mark.parametrize("upper", [False, True])
def test_blocked_cholesky_and_substitution_agree_with_torch(upper):
    # 70 rows: one block of 64, and a rest.
    x = torch.randn(70, 70)
    positive = x @ x.T / 70 + torch.eye(70)
    check(
        lambda a, b: (
            torch.linalg.cholesky(a, upper=upper),
            torch.linalg.solve_triangular(a.triu() if upper else a.tril(), b, upper=upper),
        ),
        (positive, torch.randn(70, 3)),
        tolerance=(1e-4, 1e-4),  # 70 steps of rounding
        optimized=(True,),
    )


def test_lu_of_three_blocks_agrees_with_torch():
    check(
        torch.linalg.lu,
        (torch.randn(140, 135),),
        tolerance=(1e-3, 1e-3),  # 135 steps of rounding
        optimized=(True,),
    )


def test_finished_rows_and_the_other_triangle_are_not_read():
    matrix = torch.rand(6, 6) + 6 * torch.eye(6)
    broken = matrix.clone()
    broken[2, 3], broken[0, 5] = float("inf"), float("nan")
    check(
        lambda a, b: (
            torch.linalg.solve_triangular(a, b, upper=False),
            torch.linalg.solve_triangular(a.mT, b, upper=True, unitriangular=True),
            torch.linalg.lu_factor_ex(a)[0],
        ),
        (broken, torch.randn(6, 2)),
        optimized=(True,),
    )


def test_blocked_qr_agrees_with_torch():
    # 66 columns: one block of 64, and a rest.
    check(
        lambda x: (*torch.linalg.qr(x), *torch.geqrf(x.mT)),
        (torch.randn(70, 66),),
        tolerance=(1e-4, 1e-4),  # 66 steps of rounding
        optimized=(True,),
    )


def test_repeated_and_zero_values_keep_vectors_orthogonal():
    count = 6  # padded to 8
    basis = torch.linalg.qr(torch.randn(count, count))[0]
    zeros = torch.zeros(count, count)
    projection = basis[:, :4] @ basis[:, :4].T
    clustered = (basis * (1 + 1e-6 * torch.arange(count))) @ basis.T
    graded = (basis * 10.0 ** -torch.arange(count)) @ basis.T
    matrices = [basis, zeros, zeros + 1, torch.eye(count), projection, clustered, graded]

    def made(x):
        left, singular, right = torch.linalg.svd(x)
        values, vectors = torch.linalg.eigh(x + x.mT)
        return (
            (left * singular.unsqueeze(-2)) @ right,
            singular,
            _products(left),
            _products(right),
            (vectors * values.unsqueeze(-2)) @ vectors.mT,
            values,
            _products(vectors),
        )

    check(made, (torch.stack(matrices),), tolerance=(1e-5, 1e-5), optimized=(True,))
