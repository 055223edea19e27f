"""Francis' double-shift QR iteration in windows, with one bulge in each window.

A reflection of three rows and columns moves a bulge by one position. An op of the runtime takes at
least 1 µs whatever it computes, so a step moves the bulges of all windows of all matrices, and one
pass over the whole matrices follows several steps: two products with the reflections that each
window has collected. A bulge crosses half of its window; then the matrix is rolled by half a
window, and the bulge is again at the start of one.

A bulge starts before the previous ones are at the end, so its shifts are older than in LAPACK: more
bulges are needed, but all of them move at once.

Elements of whole matrices are gathered by constant places. Slices, concatenations and selections
take the runtime 100 to 400 times as long per element as arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value

_EPSILON = 1.2e-7
# An element below the diagonal is compared with its neighbors on the diagonal, or with these parts
# of the norm. Where all of them are rounding errors, a bulge can vanish before the end.
_LEAST_SIZE, _LEAST_SIZE_IF_STUCK = 1e-10, 0.1
_LEAST_TAIL = 1e-35  # squared; smaller elements are set to zero without a reflection
_SWEEPS = 30  # per row, as LAPACK allows; usually two or three suffice
_PATIENCE = 10  # sweeps without a deflation before an exceptional shift
_HALF = 8
_ONE_WINDOW = 16  # rows of a matrix that fits into one window


@dataclass(frozen=True)
class Windows:
    """The division of matrices of `rows` rows into `count` windows of `size` rows.

    `before` rows of zeros precede each matrix, the rest follows it. A sweep over a window reflects
    at each of the `positions`.
    """

    rows: int
    size: int
    count: int
    before: int
    positions: range

    @classmethod
    def of(cls, rows: int) -> Windows:
        """Return one window for small matrices, else windows that bulges cross in two sweeps."""
        if rows <= _ONE_WINDOW:
            return cls(rows, rows + 1, 1, 1, range(1, rows))
        size = 2 * _HALF
        return cls(rows, size, -(-rows // size) + 1, _HALF, range(1, _HALF + 1))

    @property
    def all_rows(self) -> int:
        return self.size * self.count

    @property
    def after(self) -> int:
        return self.all_rows - self.rows - self.before

    def split(self, x: Value, *shape: int) -> Value:
        """Divide the rows of `[batch, rows]` into `[batch, windows, *shape]`."""
        return cai.reshape(x, [cai.size(x, 0), self.count, *shape])

    def places(self, down: torch.Tensor, across: torch.Tensor) -> torch.Tensor:
        """Return the places of elements in a flat matrix."""
        return down % self.all_rows * self.all_rows + across % self.all_rows


def mask(x: torch.Tensor) -> Value:
    """Return a constant of float32."""
    return cai.tensor_constant(x.to(torch.float32), "mask")


def take(x: Value, places: torch.Tensor) -> Value:
    """Gather the same elements of each row of `[batch, elements]`."""
    at = cai.tensor_constant(places.to(torch.int32).reshape(1, -1), "places")
    return cai.gather_along_axis(x, cai.broadcast_to(at, [cai.size(x, 0), places.numel()]), 1)


def columns(x: Value) -> list[Value]:
    """Return the columns of `[batch, n]`, each `[batch, 1]`."""
    return [cai.slice_axis(x, 1, k, k + 1) for k in range(x.type.shape[1])]


@dataclass(frozen=True)
class _Active:
    """First and last row of the lowest block of more than two rows; without one, -1 is the last."""

    start: Value
    end: Value
    bulges: Value | None  # for each window, whether there is a bulge

    @property
    def exists(self) -> Value:
        return cai.greater(self.end, -0.5)


def _deflate(
    windows: Windows, flat: Value, blocks: Value, is_stuck: Value
) -> tuple[Value, _Active]:
    """Set negligible elements below the diagonal of the windows to zero; find the active block.

    A bulge couples the rows that it covers: 1 to 3 of its window.
    """
    side, inside = windows.all_rows, torch.arange(windows.size)
    rows = torch.arange(side)
    places = [windows.places(rows, rows), windows.places(rows - 1, rows - 1)]
    found = take(flat, torch.cat([*places, windows.places(rows, rows - 1)]))
    size, above, below = (cai.slice_axis(found, 1, k * side, (k + 1) * side) for k in range(3))
    least = cai.where(is_stuck, _LEAST_SIZE_IF_STUCK, cai.like(size, _LEAST_SIZE))
    least = cai.mul(cai.maximum(cai.add(cai.abs(size), cai.abs(above)), least), _EPSILON)
    is_kept = cai.greater(cai.abs(below), least)
    bulges = covered = None
    if windows.count > 1:
        first = cai.reshape(cai.slice_axis(blocks, 3, 0, 1), cai.sizes(blocks)[:3])
        sizes = cai.reduce_max(cai.mul(cai.abs(first), mask(inside >= 2)), [2])
        bulges = cai.greater(sizes, 0.0)
        covers = cai.mul(mask((inside >= 1) & (inside <= 3)), sizes)
        covered = cai.greater(cai.reshape(covers, [cai.size(flat, 0), side]), 0.0)
        border = cai.tensor_constant(rows % windows.size == 0, "mask")
        is_kept = cai.logical_or(cai.logical_or(is_kept, covered), border)
    removed = cai.where(is_kept, 0.0, below)
    is_below = mask(inside.unsqueeze(-1) == inside + 1)
    blocks = cai.sub(blocks, cai.mul(windows.split(removed, windows.size, 1), is_below))
    is_coupled = cai.greater(cai.abs(cai.sub(below, removed)), 0.0)
    if covered is not None:
        is_coupled = cai.logical_or(is_coupled, covered)
    coupled = cai.cast(is_coupled, torch.float32)
    both = cai.mul(coupled, take(coupled, (rows - 1) % side))
    positions = mask(rows)
    end = cai.sub(cai.reduce_max(cai.mul(both, mask(rows + 1)), [1]), 1.0)
    is_before = cai.logical_not(cai.logical_or(is_coupled, cai.greater(positions, end)))
    start = cai.reduce_max(cai.mul(cai.cast(is_before, torch.float32), positions), [1])
    return blocks, _Active(start, end, bulges)


def _first_column(windows: Windows, flat: Value, active: _Active, is_stuck: Value) -> list[Value]:
    """Return the first column of the product of both shifted matrices, in the active block.

    The shifts are the eigenvalues of the last two rows; of two real ones, the nearer one twice.
    """
    side, batch = windows.all_rows, cai.size(flat, 0)
    near_end = ((-1, -1), (-1, 0), (0, -1), (0, 0), (-1, -2))
    near_start = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1))
    offsets = [[i * side + j for i, j in near] for near in (near_end, near_start)]
    origin = cai.cast(cai.concat(1, [active.end, active.start]), torch.int32)
    places = cai.mul(cai.reshape(origin, [batch, 2, 1]), side + 1)
    places = cai.add(places, cai.tensor_constant(torch.tensor(offsets), "places"))
    places = cai.reshape(cai.maximum(places, 0), [batch, 10])
    found = cai.gather_along_axis(flat, places, 1)
    a, b, c, d, other, p, q, r, s, t = columns(found)
    half = cai.mul(cai.sub(a, d), 0.5)
    product = cai.mul(b, c)
    square = cai.add(cai.mul(half, half), product)
    is_real = cai.logical_not(cai.less(square, 0.0))
    root = cai.sqrt(cai.maximum(square, 0.0))
    root = cai.where(cai.less(half, 0.0), cai.neg(root), root)
    nearer = cai.sub(cai.add(d, half), root)
    beside = cai.add(cai.abs(c), cai.abs(other))
    exceptional = cai.add(d, cai.mul(beside, 0.75))
    squares = cai.mul(cai.mul(beside, beside), -0.4375)

    def choose(stuck: Value, real: Value | float, other: Value) -> Value:
        return cai.where(is_stuck, stuck, cai.where(is_real, real, other))

    first = cai.sub(choose(exceptional, nearer, a), p)
    second = cai.sub(choose(exceptional, nearer, d), p)
    product = choose(squares, 0.0, product)
    x = cai.add(cai.sub(cai.mul(first, second), product), cai.mul(q, r))
    y = cai.mul(r, cai.sub(cai.sub(cai.sub(s, p), first), second))
    column = [x, y, cai.mul(r, t)]
    size = cai.add(cai.add(*map(cai.abs, column[:2])), cai.abs(column[2]))
    factor = cai.div(cai.cast(active.exists, torch.float32), cai.maximum(size, 1e-36))
    return [cai.mul(value, factor) for value in column]


def _start(windows: Windows, active: _Active, column: Sequence[Value]) -> tuple[Value, Value]:
    """Return the column of a new bulge, to be added to its window, and its first element as mask.

    The column before the active block is zero; the reflection there is that of a bulge. A window
    has one bulge: that of another block would mix this column with others.
    """
    size = windows.size
    rows = torch.arange(windows.all_rows)
    after = cai.sub(mask(rows), active.start)
    here, *later = (cai.cast(cai.equal(after, float(k)), torch.float32) for k in range(3))
    down = cai.mul(here, column[0])
    for is_row, value in zip(later, column[1:], strict=True):
        down = cai.add(down, cai.mul(is_row, value))
    before = cai.cast(cai.equal(after, -1.0), torch.float32)
    before = cai.mul(before, mask(rows % size < windows.positions.stop - 1))
    across = windows.split(before, 1, size)
    if active.bulges is not None:
        is_free = cai.cast(cai.logical_not(active.bulges), torch.float32)
        across = cai.mul(across, windows.split(is_free, 1, 1))
    return (
        cai.mul(windows.split(down, size, 1), across),
        cai.mul(windows.split(here, size, 1), across),
    )


def _sweep(windows: Windows, blocks: Value, basis: Value | None) -> tuple[Value, Value | None]:
    """Move all bulges through their windows; apply the reflections to the rows of `basis` too."""
    rows = torch.arange(windows.size)
    across_dims = [*cai.sizes(blocks)[:2], 1, windows.size]
    for at in windows.positions:
        column = cai.slice_axis(blocks, 3, at - 1, at)
        rest = cai.mul(column, mask(((rows > at) & (rows <= at + 2)).unsqueeze(-1)))
        tail = cai.reduce_sum(cai.mul(rest, rest), [2])
        first = cai.slice_axis(column, 2, at, at + 1)
        norm = cai.sqrt(cai.add(cai.mul(first, first), tail))
        norm = cai.where(cai.less(first, 0.0), cai.neg(norm), norm)
        leading = cai.add(first, norm)
        vector = cai.add(rest, cai.mul(leading, mask((rows == at).unsqueeze(-1))))
        is_needed = cai.greater(tail, _LEAST_TAIL)
        weight = cai.where(is_needed, cai.div(1.0, cai.mul(norm, leading)), 0.0)
        scaled = cai.mul(vector, weight)
        across, scaled_across = (cai.reshape(v, across_dims) for v in (vector, scaled))
        blocks = cai.sub(blocks, cai.mul(scaled, cai.matmul(across, blocks)))
        products = cai.reduce_sum(cai.mul(blocks, across), [3])
        blocks = cai.sub(blocks, cai.mul(products, scaled_across))
        is_zero = (rows.unsqueeze(-1) > at) & (rows == at - 1)
        blocks = cai.mul(blocks, mask(~is_zero))
        if basis is not None:
            basis = cai.sub(basis, cai.mul(scaled, cai.matmul(across, basis)))
    return blocks, basis


def _apply(windows: Windows, reflections: Value, matrix: Value) -> Value:
    """Multiply the rows of each window by its reflections."""
    dims = cai.sizes(matrix)
    rows = cai.reshape(matrix, [dims[0], windows.count, windows.size, dims[2]])
    return cai.reshape(cai.matmul(reflections, rows), dims)


def _pass(
    windows: Windows, roll: int, is_stuck: Value, matrix: Value, basis: Sequence[Value]
) -> tuple[_Active, list[Value]]:
    """Sweep over all windows, starting a bulge; apply the reflections and roll the matrix."""
    side, count, size = windows.all_rows, windows.count, windows.size
    batch = cai.size(matrix, 0)
    rows = torch.arange(side)
    flat = cai.reshape(matrix, [batch, side * side])
    inside = rows.reshape(count, size)
    blocks = take(flat, windows.places(inside.unsqueeze(-1), inside.unsqueeze(-2)).flatten())
    blocks = cai.reshape(blocks, [batch, count, size, size])
    blocks, active = _deflate(windows, flat, blocks, is_stuck)
    new, corner = _start(windows, active, _first_column(windows, flat, active, is_stuck))
    identity = None
    if count > 1 or basis:
        identity = cai.broadcast_to(mask(torch.eye(size)), cai.sizes(blocks))
    blocks, reflections = _sweep(windows, cai.add(blocks, new), identity)
    blocks = cai.mul(blocks, cai.sub(1.0, corner))
    if reflections is not None:
        basis = [_apply(windows, reflections, b) for b in basis]
    if reflections is None or count == 1:
        return active, [cai.reshape(blocks, [batch, side, side]), *basis]
    half_done = cai.transpose(_apply(windows, reflections, matrix), [0, 2, 1])
    matrix = cai.reshape(_apply(windows, reflections, half_done), [batch, count, size, count, size])
    is_same = torch.eye(count).reshape(count, 1, count, 1)
    exact = cai.reshape(cai.transpose(blocks, [0, 1, 3, 2]), [batch, count, size, 1, size])
    matrix = cai.add(cai.mul(matrix, mask(1 - is_same)), cai.mul(exact, mask(is_same)))
    rolled = rows + roll
    places = windows.places(rolled.unsqueeze(0), rolled.unsqueeze(1)).flatten()  # and transposed
    matrix = take(cai.reshape(matrix, [batch, side * side]), places)
    return active, [
        cai.reshape(matrix, [batch, side, side]),
        *(_roll_rows(b, rolled % side) for b in basis),
    ]


def _roll_rows(x: Value, rows: torch.Tensor) -> Value:
    places = cai.tensor_constant(rows.to(torch.int32).reshape(1, -1, 1), "places")
    return cai.gather_along_axis(x, cai.broadcast_to(places, cai.sizes(x)), 1)


def _iterate(windows: Windows, matrix: Value, basis: Sequence[Value]) -> list[Value]:
    """Sweep until no matrix has an active block; return the last rows of those left, and both."""
    zeros = cai.zeros(matrix, [cai.size(matrix, 0), 1])
    patience = float(_PATIENCE + windows.count)

    def continues(state: Sequence[Value]) -> Value:
        return cai.logical_and(state[1], cai.less(state[0], _SWEEPS * windows.rows))

    def body(state: Sequence[Value]) -> list[Value]:
        k, _, age, end, matrix, *basis = state
        is_stuck = cai.greater(age, patience)
        active, found = _pass(windows, windows.before, is_stuck, matrix, basis)
        if windows.count > 1:
            _, found = _pass(windows, -windows.before, is_stuck, found[0], found[1:])
        waits = cai.logical_and(cai.equal(active.end, end), cai.logical_not(is_stuck))
        age = cai.where(waits, cai.add(age, 1.0), 0.0)
        return [cai.add(k, 1), cai.any_one(active.exists), age, active.end, *found]

    start = [cai.i32(0), cai.constant(True, torch.bool), zeros, zeros, matrix, *basis]
    return graph.loop(start, continues, body)[3:]


def quasi_triangular(matrix: Value, basis: Sequence[Value] = ()) -> tuple[Value, list[Value]]:
    """Return similar matrices with blocks of one and two rows on the diagonal, NaN on failure.

    `matrix` is `[batch, rows, rows]`, in Hessenberg form and with norms of about 1. The reflections
    are applied to the rows of each `basis`.
    """
    rows = matrix.type.shape[-1]
    if rows < 3:
        return matrix, list(basis)
    windows = Windows.of(rows)
    sides = (windows.before, windows.after)
    matrix = cai.pad(matrix, [(0, 0), sides, sides])
    basis = [cai.pad(b, [(0, 0), sides, (0, 0)]) for b in basis]
    end, matrix, *basis = _iterate(windows, matrix, basis)
    nan = cai.where(cai.greater(end, -0.5), float("nan"), cai.like(end, 0.0))
    matrix = _inner(windows, _inner(windows, matrix, 1), 2)
    matrix = cai.add(matrix, cai.reshape(nan, [cai.size(nan, 0), 1, 1]))
    return matrix, [_inner(windows, b, 1) for b in basis]


def _inner(windows: Windows, x: Value, axis: int) -> Value:
    return cai.slice_axis(x, axis, windows.before, windows.before + windows.rows)
