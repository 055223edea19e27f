"""Find all eigenvalues of a few small Hessenberg matrices at once, by Aberth's iteration.

QR iteration moves a bulge position by position: 30 ops of 1 µs each for a matrix of 16 rows as for
a thousand of them. Here each step of a recurrence serves all eigenvalues. For an estimate λ, the
rows of `(H - λ) x = p e_1` from the last one up give `x` from `x_n = 1`, and in the end `p`, which
is the characteristic polynomial but for a factor (Hyman); the same recurrence, differentiated,
gives its slope. Newton's step `p / p'` for each estimate is corrected by the distances from all
others, so that no two of them find the same eigenvalue (Ehrlich and Aberth). It converges
cubically.

The result is checked, and QR iteration replaces it unless all of this holds: the spectrum is
symmetric to the real axis, each Newton step is small, `p` is a rounding error compared with `x`,
and the circles with the radius of n Newton steps, which have one eigenvalue each, do not touch. So
repeated or defective eigenvalues, matrices that fall apart into blocks (a division by zero), and
numbers that overflow or are not finite are left to QR iteration. NaN fails each comparison.

`x` are the eigenvectors of the Hessenberg form. For those of the matrix, the residuals are checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value
from ...lowering import Ctx, lowers
from ...ops.linalg.balance import norm_of
from ...ops.linalg.eig import Reduced, eig, eigvals
from ...ops.linalg.francis import as_number, mask
from ...ops.linalg.triangular_eigen import unit_columns
from ...torch_compat import aten

_MOST_ROWS = 64
_MOST_MATRICES = 2  # QR iteration takes as long for one as for several
_BLOCK = 8  # rows of the recurrence between products with all earlier rows
_STEPS = 40
_LOOKS_FIRST = 24  # rows above which it pays to compute the radius of the first estimates
_SPREAD = 1.6  # radius of a disk with evenly spread eigenvalues, divided by their mean distance
_CONVERGED = 1e-4  # the last step; the next one would be smaller than a rounding error
_LARGEST_STEP, _LARGEST_REST, _LARGEST_RESIDUAL = 2e-6, 3e-6, 1e-6
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))

# The parts of a number and of its derivative to λ, `x, iy, x', iy'`, are rows of `[4, n]`. These
# rows times λ, plus the number itself for the derivative, are `_SUMS @ (_COPIES @ rows * factors)`;
# the factors are 4 times the real part, 4 times the imaginary part, and 4 times 1.
_TURN = torch.tensor([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [0, 0, 1, 0]])
_DERIVE = torch.tensor([[0.0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
_COPIES = torch.cat([torch.eye(4), _TURN, _DERIVE])
_SUMS = torch.cat([torch.eye(4)] * 3, 1)


@dataclass(frozen=True)
class _Recurrence:
    """What does not change in the recurrence of `rows` rows.

    All rows but the first are divided by their elements below the diagonal: those of the `matrix`,
    of the parts of its `columns` that the steps of a block need, and of `sums`, which is `_SUMS`.
    """

    batch: int
    rows: int
    matrix: Value
    columns: Sequence[Value]
    sums: Sequence[Value]

    @classmethod
    def of(cls, matrix: Value, batch: int) -> _Recurrence:
        rows = matrix.type.shape[-1]
        factors = cai.div(1.0, _below(matrix))
        matrix = cai.mul(matrix, factors)
        columns = []
        for low in range(0, rows, _BLOCK):
            block = cai.slice_axis(matrix, 1, low, min(low + _BLOCK, rows))
            height = block.type.shape[1]
            for k in range(low, low + height):
                column = cai.slice_axis(block, 2, k, k + 1)
                columns.append(cai.reshape(column, [batch, height, 1, 1]))
        scaled = cai.mul(cai.reshape(factors, [batch, rows, 1, 1]), mask(_SUMS))
        sums = [cai.slice_axis(scaled, 1, k, k + 1) for k in range(rows)]
        return cls(batch, rows, matrix, columns, sums)

    def run(self, estimates: Value) -> tuple[Value, Value]:
        """Return p and p' `[batch, 1, 4, n]` at `[batch, 2, n]`, and all x `[batch, n, 4, n]`."""
        batch, rows = self.batch, self.rows
        group = torch.arange(12) // 4
        factors = cai.matmul(mask(torch.stack([group == 0, group == 1], 1)), estimates)
        factors = cai.add(factors, mask((group == 2).reshape(1, 12, 1)))
        factors = cai.reshape(factors, [batch, 1, 12, rows])
        start = torch.zeros(1, 1, 4, rows)
        start[:, :, 0] = 1
        x = cai.broadcast_to(mask(start), [batch, 1, 4, rows])
        done: Value | None = None
        for low in reversed(range(0, rows, _BLOCK)):
            x, *block = self._block(low, x, done, factors)
            done = cai.concat(1, block if done is None else [*block, done])
            if low and low % (2 * _BLOCK) == 0:
                # Without this, x overflows: 1e50 for 64 rows of numbers from 0 to 1.
                largest = cai.maximum(*(cai.reduce_max(cai.abs(v), [1, 2]) for v in (x, done)))
                factor = cai.div(1.0, cai.maximum(largest, 1.0))
                x, done = cai.mul(x, factor), cai.mul(done, factor)
        assert done is not None  # there is at least one block
        return x, done

    def _block(self, low: int, x: Value, done: Value | None, factors: Value) -> list[Value]:
        """Return the next x, and those of the rows from `low` on; `done` are the later ones."""
        high = min(low + _BLOCK, self.rows)
        found, sums = [x], None
        if done is not None:
            later = self.rows - high
            part = cai.slice_axis(cai.slice_axis(self.matrix, 1, low, high), 2, high, self.rows)
            sums = cai.matmul(part, cai.reshape(done, [self.batch, later, 4 * self.rows]))
            sums = cai.reshape(sums, [self.batch, high - low, 4, self.rows])
        for k in reversed(range(low, high)):
            change = cai.mul(self.columns[k], x)
            sums = change if sums is None else cai.add(sums, change)
            times = cai.mul(cai.matmul(mask(_COPIES), x), factors)
            x = cai.sub(
                cai.matmul(self.sums[k], times), cai.slice_axis(sums, 1, k - low, k - low + 1)
            )
            found.insert(0, x)
        return found


def _below(matrix: Value) -> Value:
    """Return the elements below the diagonal `[batch, n, 1]`; the first row has 1."""
    rows = matrix.type.shape[-1]
    is_first = mask((torch.arange(rows) == 0).reshape(1, -1, 1))
    is_below = mask(torch.eye(rows).roll(1, 0).tril(-1))
    return cai.add(cai.reduce_sum(cai.mul(matrix, is_below), [2]), is_first)


def _parts(x: Value, axis: int) -> list[Value]:
    return [cai.slice_axis(x, axis, k, k + 1) for k in range(x.type.shape[axis])]


def _quotient(first: Sequence[Value], second: Sequence[Value]) -> list[Value]:
    """Divide complex numbers."""
    size = cai.maximum(*map(cai.abs, second))
    a, b = (cai.div(v, size) for v in first)
    c, d = (cai.div(v, size) for v in second)
    square = cai.add(cai.mul(c, c), cai.mul(d, d))
    real = cai.add(cai.mul(a, c), cai.mul(b, d))
    imaginary = cai.sub(cai.mul(b, c), cai.mul(a, d))
    return [cai.div(real, square), cai.div(imaginary, square)]


def _newton(values: Value) -> list[Value]:
    """Return the real and imaginary parts `[batch, 1, n]` of p / p'."""
    batch, _, _, rows = cai.sizes(values)
    a, b, c, d = _parts(cai.reshape(values, [batch, 4, rows]), 1)
    return _quotient((a, b), (c, d))


def _gaps(estimates: Value, sign: float = 1.0) -> list[Value]:
    """Return the differences `[batch, n, n]` of estimates, or from conjugates if `sign` is -1."""
    batch, _, rows = cai.sizes(estimates)
    gaps = []
    for part, factor in zip(_parts(estimates, 1), (1.0, sign), strict=True):
        other = cai.reshape(part, [batch, rows, 1])
        gaps.append(cai.sub(other, part) if factor > 0 else cai.add(other, part))
    return gaps


def _squares(parts: Sequence[Value]) -> Value:
    return cai.add(*(cai.mul(v, v) for v in parts))


def _improved(values: Value, estimates: Value) -> Value:
    """Return better estimates: `λ - p / (p' - p s)`, where s is the sum of all `1 / (λ - λ_j)`."""
    batch, _, rows = cai.sizes(estimates)
    gaps = _gaps(estimates)
    square = cai.add(_squares(gaps), mask(torch.eye(int(rows))))
    x, y = (cai.reshape(cai.reduce_sum(cai.div(g, square), [2]), [batch, 1, rows]) for g in gaps)
    a, b, c, d = _parts(cai.reshape(values, [batch, 4, rows]), 1)
    # The sum is `x - iy`.
    real = cai.sub(c, cai.add(cai.mul(a, x), cai.mul(b, y)))
    imaginary = cai.sub(d, cai.sub(cai.mul(b, x), cai.mul(a, y)))
    change = cai.concat(1, _quotient((a, b), (real, imaginary)))
    return cai.sub(estimates, change)


@dataclass(frozen=True)
class _Disk:
    """The disk where the estimates start: `[batch, 1, 1]`."""

    center: Value
    radius: Value
    logarithm: Value  # of the product of all elements below the diagonal

    @classmethod
    def of(cls, matrix: Value) -> _Disk:
        rows = matrix.type.shape[-1]
        identity = mask(torch.eye(rows))
        center = cai.mul(cai.reduce_sum(cai.mul(matrix, identity), [1, 2]), 1 / rows)
        beside = cai.sub(matrix, cai.mul(identity, center))
        radius = cai.sqrt(cai.mul(cai.reduce_sum(cai.mul(beside, beside), [1, 2]), 1 / rows))
        below = cai.slice_axis(_below(matrix), 1, 1, rows)
        return cls(center, radius, cai.reduce_sum(cai.log(cai.abs(below)), [1]))

    @property
    def size(self) -> Value:
        """The usual size of an eigenvalue."""
        return cai.add(self.radius, cai.abs(self.center))

    def spread(self, radius: Value, rows: int) -> Value:
        """Return estimates `[batch, 2, n]` at all distances from the center."""
        here = torch.arange(rows, dtype=torch.float64)
        angles, lengths = here * _GOLDEN_ANGLE + 0.3, ((here + 0.5) / rows).sqrt()
        spread = mask(torch.stack([angles.cos() * lengths, angles.sin() * lengths]))
        center = cai.mul(self.center, mask(torch.tensor([[1.0], [0.0]])))
        return cai.add(center, cai.mul(radius, spread))

    def mean_distance(self, values: Value, x: Value) -> Value:
        """Return the geometric mean of the distances of all eigenvalues from the center.

        It is a root of the determinant. The radius is a mean of squares: one eigenvalue of 1 among
        values of 0.01, as of a matrix of probabilities, made it 12 times too large, and 40 steps
        of 20 necessary. p and x are at the center, and x_n was 1 before it was scaled.
        """
        batch, rows = cai.size(values, 0), x.type.shape[1]
        p = cai.slice_axis(cai.slice_axis(values, 2, 0, 1), 3, 0, 1)
        last = cai.slice_axis(cai.slice_axis(x, 1, rows - 1, rows), 2, 0, 1)
        logarithms = [cai.log(cai.abs(v)) for v in (p, cai.slice_axis(last, 3, 0, 1))]
        root = cai.reshape(cai.sub(*logarithms), [batch, 1, 1])
        mean = cai.exp(cai.mul(cai.add(root, self.logarithm), 1 / rows))
        usual = cai.mul(self.radius, 0.01)
        return cai.maximum(cai.minimum(cai.mul(mean, _SPREAD), self.radius), usual)


def _in_pairs(estimates: Value, size: Value) -> tuple[Value, Value]:
    """Make the estimates symmetric to the real axis, pairs side by side; return where they were.

    The estimate that is nearest to the conjugate of one is its other half, or itself.
    """
    batch, _, rows = cai.sizes(estimates)
    square = _squares(_gaps(estimates, -1.0))
    least = cai.reduce_min(square, [2])
    other = as_number(cai.equal(square, least))
    is_mutual = cai.equal(other, cai.transpose(other, [0, 2, 1]))
    is_single = cai.equal(cai.reduce_sum(other, [2]), 1.0)
    bound = cai.mul(size, _CONVERGED)
    is_near = cai.less(least, cai.mul(bound, bound))
    is_right = cai.logical_and(_all(is_mutual), _all(cai.logical_and(is_single, is_near)))
    signs = mask(torch.tensor([[1.0], [-1.0]]))
    partners = cai.mul(cai.matmul(estimates, other), signs)
    estimates = cai.mul(cai.add(estimates, partners), 0.5)
    here = torch.arange(rows)
    first = cai.minimum(cai.matmul(mask(here.reshape(1, 1, -1)), other), mask(here))
    is_lower = as_number(cai.less(cai.slice_axis(estimates, 1, 1, 2), 0.0))
    key = cai.add(cai.mul(first, 2.0), is_lower)
    order = cai.argsort(cai.reshape(key, [batch, rows]), 1, False)
    order = cai.reshape(cai.cast(order, torch.int32), [batch, 1, rows])
    order = cai.broadcast_to(order, [batch, 2, rows])
    return cai.gather_along_axis(estimates, order, 2), is_right


def _all(condition: Value) -> Value:
    return cai.logical_not(cai.any_one(cai.logical_not(condition)))


def _is_right(values: Value, x: Value, estimates: Value, size: Value) -> Value:
    """Return whether each estimate belongs to one eigenvalue, but for rounding errors."""
    batch, _, rows = cai.sizes(estimates)
    step = cai.maximum(*map(cai.abs, _newton(values)))
    is_small = cai.less(step, cai.mul(size, _LARGEST_STEP))
    rest = cai.reshape(cai.reduce_max(cai.abs(cai.slice_axis(values, 2, 0, 2)), [2]), [batch, rows])
    largest = cai.reduce_max(cai.abs(cai.slice_axis(x, 2, 0, 2)), [1, 2])
    largest = cai.reshape(largest, [batch, rows])
    norm = cai.mul(size, _LARGEST_REST * math.sqrt(int(rows)))
    bound = cai.mul(largest, cai.reshape(norm, [batch, 1]))
    is_solved = cai.less(rest, bound)
    apart = cai.add(_squares(_gaps(estimates)), mask(torch.eye(int(rows)) * 1e6))
    radius = cai.mul(cai.add(cai.reduce_max(step, [2]), cai.mul(size, 1e-7)), 3.0 * int(rows))
    is_apart = cai.greater(apart, cai.mul(radius, radius))
    return cai.logical_and(cai.logical_and(_all(is_small), _all(is_solved)), _all(is_apart))


def _converged(recurrence: _Recurrence, disk: _Disk) -> Value:
    """Return estimates that the last step has changed little, or those of the last step."""
    rows = recurrence.rows
    bound = cai.mul(disk.size, _CONVERGED)
    looks_first = rows > _LOOKS_FIRST

    def continues(state: Sequence[Value]) -> Value:
        return cai.logical_and(state[1], cai.less(state[0], _STEPS))

    def body(state: Sequence[Value]) -> list[Value]:
        k, _, estimates = state
        values, x = recurrence.run(estimates)
        improved = _improved(values, estimates)
        change = cai.reduce_max(cai.abs(cai.sub(improved, estimates)), [1, 2])
        goes_on = cai.any_one(cai.greater(change, bound))
        if looks_first:
            is_first = cai.equal(k, 0)
            start = disk.spread(disk.mean_distance(values, x), rows)
            improved = cai.where(is_first, start, improved)
            goes_on = cai.logical_or(goes_on, is_first)
        return [cai.add(k, 1), goes_on, improved]

    radius = cai.mul(disk.radius, 0.0 if looks_first else 1.0)
    start = [cai.i32(0), cai.constant(True, torch.bool), disk.spread(radius, rows)]
    return graph.loop(start, continues, body)[2]


def _all_at_once(reduced: Reduced) -> list[Value]:
    """Return parts of values and vectors; those of the QR iteration if these are not right."""
    matrix = reduced.matrix
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    if not 3 <= rows <= _MOST_ROWS or not isinstance(batch, int) or batch > _MOST_MATRICES:
        return reduced.by_qr()
    recurrence, disk = _Recurrence.of(matrix, batch), _Disk.of(matrix)
    estimates, size = _converged(recurrence, disk), disk.size
    estimates, is_symmetric = _in_pairs(estimates, size)
    values, x = recurrence.run(estimates)
    is_right = cai.logical_and(is_symmetric, _is_right(values, x, estimates, size))
    parts = _parts(estimates, 1)
    results = [cai.reshape(v, [batch, rows]) for v in parts]
    for basis in reduced.basis:
        restored = reduced.restore(basis)
        of_matrix = (
            cai.reshape(v, [batch, rows, rows]) for v in _parts(cai.slice_axis(x, 2, 0, 2), 2)
        )
        vectors = unit_columns(*(cai.matmul(restored, v) for v in of_matrix))
        is_right = cai.logical_and(is_right, _are_vectors(reduced, parts, vectors))
        results += vectors
    return graph.branch(is_right, [v.type for v in results], lambda: results, reduced.by_qr)


def _are_vectors(reduced: Reduced, values: Sequence[Value], vectors: Sequence[Value]) -> Value:
    """Return whether the residuals are rounding errors, also where balancing has scaled them."""
    given, (real, imaginary), (first, second) = reduced.given, values, vectors
    given = cai.div(given, reduced.norm)
    rests = (
        cai.sub(
            cai.matmul(given, first), cai.sub(cai.mul(first, real), cai.mul(second, imaginary))
        ),
        cai.sub(
            cai.matmul(given, second), cai.add(cai.mul(second, real), cai.mul(first, imaginary))
        ),
    )
    largest = cai.reduce_max(cai.maximum(*map(cai.abs, rests)), [1, 2])
    return _all(cai.less(largest, cai.mul(norm_of(given), _LARGEST_RESIDUAL)))


_REASON = "64 x 64 takes 228 ms by QR iteration, 33 if all values are found at once"


@lowers(aten.linalg_eigvals.default, aten._linalg_eigvals.default, target="linux", reason=_REASON)
def linalg_eigvals(ctx: Ctx, x: Value) -> Value:
    return eigvals(ctx, x, _all_at_once)


@lowers(aten.linalg_eig.default, target="linux", reason=_REASON)
def linalg_eig(ctx: Ctx, x: Value) -> tuple[Value, Value]:
    return eig(ctx, x, _all_at_once)
