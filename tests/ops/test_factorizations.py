"""Factorizations whose vectors have an arbitrary sign, and the limits of all factorizations."""

from __future__ import annotations

import pytest
import torch
from module_runner import check, convert, run

from coreai_torch.errors import ConversionError

DYNAMIC = torch.export.Dim.DYNAMIC
targets = pytest.mark.parametrize("target", [None, "linux"])  # whose forms have other algorithms


@pytest.fixture(autouse=True)
def same_matrices_in_each_run():
    """Some random matrices have eigenvalues that differ in float32 by 1e-4 with a rounding."""
    torch.manual_seed(0)


def _products(basis):
    return basis.mT @ basis


@targets
@pytest.mark.parametrize("full", [True, False], ids=["full", "reduced"])
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 6)], ids=str)
def test_singular_vectors_are_orthogonal_and_reconstruct_the_matrix(shape, full, target):
    def made(x):
        left, values, right = torch.linalg.svd(x, full)
        count = values.shape[-1]
        whole = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
        return whole, values, _products(left), _products(right.mT)

    check(made, (torch.rand(shape),), optimized=(True,), target=target)


@targets
def test_rank_deficient_matrix_has_a_full_basis(target):
    """Also for a zero matrix, where any basis is right."""

    def products(x):
        left, values, right = torch.linalg.svd(x)
        return values, _products(left), _products(right.mT)

    x = torch.rand(3, 1) @ torch.rand(1, 3)
    check(products, (torch.stack([x, torch.zeros(3, 3)]),), optimized=(True,), target=target)


@targets
def test_eigenvectors_are_orthogonal_and_reconstruct_the_matrix(target):
    def made(x):
        values, vectors = torch.linalg.eigh(x)
        return (vectors * values.unsqueeze(-2)) @ vectors.mT, values, _products(vectors)

    check(made, (torch.rand(2, 5, 5),), optimized=(True,), target=target)


def _symmetric_eigen(x):
    values, vectors = torch.linalg.eigh(x)
    return (vectors * values.unsqueeze(-2)) @ vectors.mT, values, _products(vectors)


def _singular(x):
    left, values, right = torch.linalg.svd(x)
    return (left * values.unsqueeze(-2)) @ right, values, _products(left), _products(right.mT)


@targets
@pytest.mark.parametrize("rows", [31, 64])
def test_rotations_of_many_columns_converge(rows, target):
    """Also for repeated and clustered values, ranks below the size, and values of many sizes."""
    basis, x = torch.linalg.qr(torch.randn(rows, rows))[0], torch.randn(rows, rows)
    matrices = [
        x / rows,
        basis,
        basis[:, : rows // 2] @ basis[:, : rows // 2].mT,
        x[:, :3] @ x[:3] / rows,
        (basis * (1 + 1e-6 * torch.arange(rows))) @ basis.mT,
        (basis * 10.0 ** -torch.arange(rows)) @ basis.mT,
        torch.ones(rows, rows) / rows,
        torch.zeros(rows, rows),
    ]
    stacked = torch.stack(matrices)
    check(_singular, (stacked,), optimized=(True,), target=target)
    check(_symmetric_eigen, (stacked + stacked.mT,), optimized=(True,), target=target)


@targets
def test_singular_values_and_eigenvalues_of_a_dynamic_batch(target):
    sizes = [(torch.randn(n, 5, 5),) for n in (2, 3)]
    for function in (_singular, _symmetric_eigen):
        check(
            lambda x, f=function: f(x + x.mT), *sizes, dynamic_shapes=({0: DYNAMIC},), target=target
        )


@targets
@pytest.mark.parametrize("function", [torch.linalg.svdvals, torch.linalg.eigvalsh])
def test_only_the_matrix_that_is_not_finite_has_nan_as_values(function, target):
    x = torch.randn(3, 6, 6)
    x = x + x.mT
    broken = x.clone()
    broken[0, 2, 2], broken[1, 3, 1] = float("inf"), float("nan")
    (found,) = run(convert(function, (x,), target=target), (broken,))
    assert found[:2].isnan().all()
    torch.testing.assert_close(found[2], function(x[2]), rtol=1e-5, atol=1e-5)


def _eigen(x):
    """Return results of eig that do not depend on the order of the values."""
    values, vectors = torch.linalg.eig(x)
    rest = x.to(torch.complex64) @ vectors - vectors * values.unsqueeze(-2)
    lengths = (vectors.abs() ** 2).sum(-2)
    return rest.abs(), lengths, *_in_order(values), *_in_order(torch.linalg.eigvals(x))


def _in_order(values):
    return values.real.sort(-1).values, values.imag.sort(-1).values


def _tolerance(rows):
    """Return tolerances for values and residuals whose sizes and errors grow with the norm."""
    return 1e-5, 1e-5 * max(rows, 2) ** 0.5


# One window (28 rows at most), windows of 8 rows, and windows of 16 rows.
@targets
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 28, 29, 40, 130])
def test_eigenvalues_and_vectors_satisfy_their_equation(rows, target):
    # A fixed seed: eigenvalues of one random matrix of 130 rows differed from eager's by 2.7e-4.
    x = torch.randn(2, rows, rows, generator=torch.Generator().manual_seed(rows))
    check(_eigen, (x,), tolerance=_tolerance(rows), optimized=(True,), target=target)


@pytest.mark.parametrize("rows", [6, 20, 40])
def test_eigenvalues_of_matrices_that_are_hard_for_qr(rows):
    """Repeated values, exact zeros, values on a circle, and values of many sizes."""
    basis = torch.linalg.qr(torch.randn(rows, rows))[0]
    identity, ones = torch.eye(rows), torch.ones(rows - 1)
    matrices = [
        torch.zeros(rows, rows),
        identity,
        identity.roll(1, 0),  # without an exceptional shift, QR does not change it
        basis,
        basis[:, :3] @ basis[:, :3].T,
        (basis * (1 + 1e-6 * torch.arange(rows))) @ basis.T,
        (basis * 10.0 ** -torch.arange(rows)) @ basis.T,
        2 * identity + torch.diag(ones, 1),  # one vector only
        torch.diag(ones, -1),
        torch.randn(rows, rows).triu(),
        torch.randn(rows, rows).tril(),  # without a permutation, wrong by 5 %
        torch.block_diag(*[torch.tensor([[0.0, 1.0], [-4.0, 0.0]])] * (rows // 2)),
    ]
    check(_eigen, (torch.stack(matrices),), tolerance=(1e-5, 1e-5), optimized=(True,))


@targets
@pytest.mark.parametrize("rows", [3, 7, 26])
def test_eigenvectors_of_one_matrix_at_a_time(rows, target):
    """One program for matrices that suit the iteration for all values at once, and others.

    Of a triangular matrix and noise, the last kind, the residual was 9e-4 with another balancing.
    """
    basis = torch.linalg.qr(torch.randn(rows, rows))[0]
    random, identity, ones = torch.randn(rows, rows), torch.eye(rows), torch.ones(rows - 1)
    matrices = {
        "usual": random,
        "real values": random + random.mT,
        "on a circle": basis,
        "one large value": torch.rand(rows, rows).softmax(1),
        "roots of a polynomial": torch.cat([random[:1], identity[:-1]]),
        "zero": torch.zeros(rows, rows),
        "repeated": basis[:, :2] @ basis[:, :2].mT,
        "nearly repeated": (basis * (1 + 1e-6 * torch.arange(rows))) @ basis.mT,
        "one vector only": basis @ (2 * identity + torch.diag(ones, 1)) @ basis.mT,
        "blocks": torch.block_diag(random[:2, :2], random[2:, 2:]),
        "nearly triangular": random.triu() + 1e-6 * torch.randn(rows, rows),
    }

    def residual(x):
        values, vectors = torch.linalg.eig(x)
        rest = x.to(torch.complex64) @ vectors - vectors * values.unsqueeze(-2)
        return (
            rest.abs().amax(),
            values.real.sum(),
            values.imag.sum(),
            vectors.abs().square().sum(0),
        )

    program = convert(residual, (random,), target=target)
    for name, x in matrices.items():
        rest, real, imaginary, lengths = run(program, (x,))
        bound = 1e-5 * max(float(torch.linalg.matrix_norm(x, 2)), 1e-6)
        assert rest < bound, name
        assert abs(float(real - x.trace())) < 3 * rows**0.5 * bound, name
        assert imaginary == 0, name
        torch.testing.assert_close(lengths, torch.ones(rows), msg=name)


@targets
def test_eigenvalues_of_one_matrix_are_conjugate_pairs_side_by_side(target):
    program = convert(
        lambda x: torch.view_as_real(torch.linalg.eigvals(x)), (torch.randn(12, 12),), target=target
    )
    (found,) = run(program, (torch.randn(12, 12),))
    real, imaginary = found.unbind(-1)
    first = imaginary.gt(0).nonzero().flatten()
    assert first.numel()
    assert torch.equal(real[first], real[first + 1])
    assert torch.equal(imaginary[first], -imaginary[first + 1])
    assert imaginary.ne(0).sum() == 2 * first.numel()


@targets
def test_eigenvalues_of_a_badly_scaled_matrix(target):
    """Without scaling, rounding errors of the large elements exceed all values."""
    scale = 10.0 ** torch.linspace(-5, 5, 9)
    x = torch.randn(9, 9) * scale / scale.unsqueeze(-1)

    def vectors(x):
        values, vectors = torch.linalg.eig(x)
        turned = vectors.real * scale.unsqueeze(-1), vectors.imag * scale.unsqueeze(-1)
        length = (turned[0] ** 2 + turned[1] ** 2).sum(-2)
        first = values.real.argsort()
        return *_in_order(values), length[first]

    # Eigenvectors have ten times the error of the values.
    check(vectors, (x,), tolerance=(1e-4, 1e-5), optimized=(True,), target=target)


@targets
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_eigenvalues_neither_overflow_nor_underflow(scale, target):
    matrix = torch.randn(7, 7)

    def values(x):
        return [part / scale for part in _in_order(torch.linalg.eigvals(x))]

    check(values, (matrix * scale,), tolerance=(1e-5, 1e-5), optimized=(True,), target=target)


@targets
def test_eigenvalues_of_a_dynamic_or_empty_batch(target):
    for rows in (5, 30):
        sizes = [(torch.randn(n, rows, rows),) for n in (2, 3)]
        check(
            _eigen,
            *sizes,
            dynamic_shapes=({0: DYNAMIC},),
            tolerance=_tolerance(rows),
            target=target,
        )
    check(torch.linalg.eigvals, (torch.rand(0, 3, 3),), optimized=(True,), target=target)
    check(torch.linalg.eig, (torch.rand(2, 0, 0),), optimized=(True,), target=target)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_eigenvalues_of_a_matrix_that_is_not_finite_are_nan(number):
    """Torch raises; a program returns NaN for this matrix and the values of the others."""
    x = torch.randn(2, 30, 30)
    broken = x.clone()
    broken[0, 3, 5] = number
    program = convert(lambda x: torch.linalg.eigvals(x).real, (x,))
    (found,) = run(program, (broken,))
    assert found[0].isnan().all()
    torch.testing.assert_close(
        found[1].sort().values, torch.linalg.eigvals(x[1]).real.sort().values, rtol=1e-4, atol=1e-4
    )


def test_dynamic_batch_of_matrices():
    def solved(x, y):
        return torch.linalg.solve(x @ x.mT + torch.eye(6), y)

    sizes = [(torch.rand(n, 6, 6), torch.rand(n, 6, 2)) for n in (2, 3)]
    check(solved, *sizes, dynamic_shapes=({0: DYNAMIC}, {0: DYNAMIC}))


def test_dynamic_matrix_size_is_rejected():
    size = torch.export.Dim("n", min=2, max=9)
    with pytest.raises(ConversionError, match=r"cholesky: a matrix whose size is[\s\S]*known when"):
        convert(torch.linalg.cholesky, (torch.eye(3),), ({0: size, 1: size},))


@pytest.mark.parametrize("function", [torch.linalg.eig, torch.linalg.eigvals])
def test_eig_of_a_complex_or_dynamic_matrix_is_rejected(function):
    with pytest.raises(ConversionError, match=r"linalg\.eig\w*: a complex matrix"):
        convert(function, (torch.rand(3, 3, dtype=torch.complex64),))
    size = torch.export.Dim("n", min=2, max=9)
    with pytest.raises(ConversionError, match=r"linalg\.eig\w*: a matrix whose size is"):
        convert(function, (torch.eye(3),), ({0: size, 1: size},))


def test_complex_matrices_are_rejected():
    with pytest.raises(ConversionError, match=r"linalg\.svd: a complex matrix"):
        convert(torch.linalg.svdvals, (torch.rand(3, 3, dtype=torch.complex64),))


@pytest.mark.parametrize("upper", [False, True])
def test_large_cholesky_and_substitution_agree_with_torch(upper):
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


def test_large_lu_agrees_with_torch():
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


def test_large_qr_agrees_with_torch():
    check(
        lambda x: (*torch.linalg.qr(x), *torch.geqrf(x.mT)),
        (torch.randn(70, 66),),
        tolerance=(1e-4, 1e-4),  # 66 steps of rounding
        optimized=(True,),
    )


@targets
def test_repeated_and_zero_values_keep_vectors_orthogonal(target):
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

    check(made, (torch.stack(matrices),), tolerance=(1e-5, 1e-5), optimized=(True,), target=target)
