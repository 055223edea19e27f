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
_ONE_WINDOW = 28  # rows of a matrix that fits into one window


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
        # More bulges start in smaller windows: faster for few rows, and more rounding errors.
        half = 4 if rows <= 128 else 8
        return cls(rows, 2 * half, -(-rows // (2 * half)) + 1, half, range(1, half + 1))

    @property
    def all_rows(self) -> int:
        return self.size * self.count

    @property
    def after(self) -> int:
        return self.all_rows - self.rows - self.before

    def split(self, x: Value, *shape: int) -> Value:
        """Divide the rows of `[batch, rows]` into `[batch, windows, *shape]`."""
        return cai.reshape(x, [cai.size(x, 0), self.count, *shape])

    @property
    def shift(self) -> int:
        """The number of rows by which a pass rolls the matrix."""
        return self.before if self.count > 1 else 0

    def places(self, down: torch.Tensor, across: torch.Tensor, second: bool) -> torch.Tensor:
        """Return the places of elements in a flat matrix, as `_pass` expects it."""
        if second:
            down, across = across, down + self.shift
        else:
            across = across - self.shift
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

    @property
    def exists(self) -> Value:
        return cai.greater(self.end, -0.5)


def _bulges(blocks: Value) -> tuple[Value, Value]:
    """Return the greatest element of the bulge of each window, and which rows it couples.

    A bulge couples the rows 1 to 3 of its window; at the end of a block it has no third row.
    """
    batch, count, size, _ = cai.sizes(blocks)
    rows = torch.arange(int(size))
    columns = cai.abs(cai.slice_axis(blocks, 2, 0, 2))
    elements = cai.mul(columns, mask(torch.stack([rows >= 2, rows == 3])))
    elements = cai.reshape(cai.reduce_max(elements, [2]), [batch, count, size])
    largest = cai.reduce_max(elements, [2])
    couples = cai.mul(largest, mask((rows == 1) | (rows == 2)))
    couples = cai.add(couples, cai.mul(elements, mask(rows == 3)))
    return largest, cai.greater(cai.reshape(couples, [batch, count * size]), 0.0)


def _deflate(
    windows: Windows, flat: Value, second: bool, blocks: Value, is_stuck: Value
) -> tuple[Value, _Active]:
    """Set negligible elements below the diagonal of the windows to zero; find the active block.

    `blocks` are the transposed windows.
    """
    side, inside = windows.all_rows, torch.arange(windows.size)
    rows = torch.arange(side)
    pairs = ((rows, rows), (rows - 1, rows - 1), (rows, rows - 1))
    found = take(flat, torch.cat([windows.places(*pair, second) for pair in pairs]))
    size, above, below = (cai.slice_axis(found, 1, k * side, (k + 1) * side) for k in range(3))
    least = cai.where(is_stuck, _LEAST_SIZE_IF_STUCK, cai.like(size, _LEAST_SIZE))
    least = cai.mul(cai.maximum(cai.add(cai.abs(size), cai.abs(above)), least), _EPSILON)
    is_kept = cai.greater(cai.abs(below), least)
    covered = None
    if windows.count > 1:
        _, covered = _bulges(blocks)
        border = cai.tensor_constant(rows % windows.size == 0, "mask")
        is_kept = cai.logical_or(cai.logical_or(is_kept, covered), border)
    removed = cai.where(is_kept, 0.0, below)
    is_below = mask(inside.unsqueeze(-1) == inside - 1)
    blocks = cai.sub(blocks, cai.mul(windows.split(removed, 1, windows.size), is_below))
    is_coupled = cai.greater(cai.abs(cai.sub(below, removed)), 0.0)
    if covered is not None:
        is_coupled = cai.logical_or(is_coupled, covered)
    coupled = cai.cast(is_coupled, torch.float32)
    both = cai.mul(coupled, take(coupled, (rows - 1) % side))
    positions = mask(rows)
    end = cai.sub(cai.reduce_max(cai.mul(both, mask(rows + 1)), [1]), 1.0)
    is_before = cai.logical_not(cai.logical_or(is_coupled, cai.greater(positions, end)))
    start = cai.reduce_max(cai.mul(cai.cast(is_before, torch.float32), positions), [1])
    return blocks, _Active(start, end)


def _first_column(
    windows: Windows, flat: Value, second: bool, active: _Active, is_stuck: Value
) -> list[Value]:
    """Return the first column of the product of both shifted matrices, in the active block.

    The shifts are the eigenvalues of the last two rows; of two real ones, the nearer one twice.
    """
    side, batch = windows.all_rows, cai.size(flat, 0)
    near_end = ((-1, -1), (-1, 0), (0, -1), (0, 0), (-1, -2))
    near_start = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1))
    down, across, shift = (1, side, windows.shift) if second else (side, 1, -windows.shift)
    offsets = [[i * down + j * across + shift for i, j in near] for near in (near_end, near_start)]
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
    # The last rows may be those of a bulge, whose elements below the diagonal can be zero.
    beside = cai.add(cai.add(cai.abs(c), cai.abs(other)), cai.add(cai.abs(r), cai.abs(t)))
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


def _start(
    windows: Windows, active: _Active, column: Sequence[Value], blocks: Value
) -> tuple[Value, Value]:
    """Return the transposed windows with a new bulge, and zero at its first element, else one.

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
    column_before = windows.split(before, size, 1)
    if windows.count > 1:
        is_free = cai.cast(cai.equal(_bulges(blocks)[0], 0.0), torch.float32)
        column_before = cai.mul(column_before, windows.split(is_free, 1, 1))
    corner = cai.mul(windows.split(here, 1, size), column_before)
    blocks = cai.add(blocks, cai.mul(windows.split(down, 1, size), column_before))
    return blocks, cai.sub(1.0, corner)


def _with_new_bulges(
    windows: Windows, flat: Value, second: bool, active: _Active, is_stuck: Value, blocks: Value
) -> tuple[Value, Value]:
    """Return the results of `_start`; if no active block starts in a first half, skip the ops."""

    def start() -> tuple[Value, Value]:
        column = _first_column(windows, flat, second, active, is_stuck)
        return _start(windows, active, column, blocks)

    if windows.count == 1:
        return start()

    def skip() -> tuple[Value, Value]:
        return blocks, cai.broadcast_to(cai.like(blocks, 1.0), cai.sizes(blocks))

    at = cai.modulo(active.start, float(windows.size))
    is_first = cai.logical_and(cai.greater(at, 0.5), cai.less(at, windows.before + 0.5))
    can_start = cai.any_one(cai.logical_and(is_first, active.exists))
    found = graph.branch(can_start, [blocks.type] * 2, start, skip)
    return found[0], found[1]


def _sweep(windows: Windows, blocks: Value, with_basis: bool) -> tuple[Value, Value | None]:
    """Move all bulges through their windows; return the product of the reflections too.

    `blocks` are transposed. Vectors are rows: the runtime takes 20 times as long for a column.
    """
    rows = torch.arange(windows.size)
    down = [*cai.sizes(blocks)[:3], 1]
    basis = None
    for at in windows.positions:
        column = cai.slice_axis(blocks, 2, at - 1, at)
        rest = cai.mul(column, mask((rows > at) & (rows <= at + 2)))
        tail = cai.reduce_sum(cai.mul(rest, rest), [3])
        first = cai.slice_axis(column, 3, at, at + 1)
        norm = cai.sqrt(cai.add(cai.mul(first, first), tail))
        norm = cai.where(cai.less(first, 0.0), cai.neg(norm), norm)
        leading = cai.add(first, norm)
        vector = cai.add(rest, cai.mul(leading, mask(rows == at)))
        is_needed = cai.greater(tail, _LEAST_TAIL)
        weight = cai.where(is_needed, cai.div(1.0, cai.mul(norm, leading)), 0.0)
        scaled = cai.mul(vector, weight)
        scaled_down = cai.reshape(scaled, down)
        sums = cai.reduce_sum(cai.mul(blocks, vector), [3])
        blocks = cai.sub(blocks, cai.mul(sums, scaled))
        blocks = cai.sub(blocks, cai.mul(scaled_down, cai.matmul(vector, blocks)))
        if basis is not None:
            basis = cai.sub(basis, cai.mul(scaled_down, cai.matmul(vector, basis)))
        elif with_basis:
            basis = cai.sub(mask(torch.eye(windows.size)), cai.mul(scaled_down, vector))
    is_zero = (rows < windows.positions[-1]).unsqueeze(-1) & (rows > rows.unsqueeze(-1) + 1)
    return cai.mul(blocks, mask(~is_zero)), basis


def _apply(windows: Windows, reflections: Value, matrix: Value) -> Value:
    """Multiply the rows of each window by its reflections."""
    dims = cai.sizes(matrix)
    rows = cai.reshape(matrix, [dims[0], windows.count, windows.size, dims[2]])
    return cai.reshape(cai.matmul(reflections, rows), dims)


def _windows_of(windows: Windows, second: bool, flat: Value) -> Value:
    """Return the transposed windows."""
    inside = torch.arange(windows.all_rows).reshape(windows.count, windows.size)
    places = windows.places(inside.unsqueeze(-2), inside.unsqueeze(-1), second)
    found = take(flat, places.flatten())
    return cai.reshape(found, [cai.size(flat, 0), windows.count, windows.size, windows.size])


def _reflect(
    windows: Windows, second: bool, matrix: Value, reflections: Value, blocks: Value
) -> Value:
    """Apply the reflections to rows and columns, and transpose; `blocks` is exact."""
    side, count, size = windows.all_rows, windows.count, windows.size
    batch = cai.size(matrix, 0)
    half_done = cai.transpose(_apply(windows, reflections, matrix), [0, 2, 1])
    matrix = _apply(windows, reflections, _roll(windows, not second, half_done))
    window = torch.arange(side) // size
    if second:
        blocks = cai.transpose(blocks, [0, 1, 3, 2])
    is_same = mask(torch.eye(count).reshape(count, 1, count, 1))
    exact = cai.mul(cai.reshape(blocks, [batch, count, size, 1, size]), is_same)
    outside = cai.mul(matrix, mask(window.unsqueeze(-1) != window))
    return cai.add(outside, cai.reshape(exact, [batch, side, side]))


def _pass(
    windows: Windows, second: bool, is_stuck: Value, matrix: Value, basis: Sequence[Value]
) -> tuple[_Active, list[Value]]:
    """Deflate, start bulges where possible, sweep over all windows and apply the reflections.

    The columns of the matrix are rolled by half a window, so that one transpose suffices. The first
    pass returns the transpose of the matrix for the second one, whose windows start half a window
    later; the second pass does the reverse.
    """
    side, batch = windows.all_rows, cai.size(matrix, 0)
    flat = cai.reshape(matrix, [batch, side * side])
    blocks = _windows_of(windows, second, flat)
    blocks, active = _deflate(windows, flat, second, blocks, is_stuck)
    blocks, corner = _with_new_bulges(windows, flat, second, active, is_stuck, blocks)
    blocks, reflections = _sweep(windows, blocks, windows.count > 1 or bool(basis))
    blocks = cai.mul(blocks, corner)
    if reflections is not None:
        basis = [_apply(windows, reflections, b) for b in basis]
    if reflections is None or windows.count == 1:
        matrix = cai.transpose(cai.reshape(blocks, [batch, side, side]), [0, 2, 1])
        return active, [matrix, *basis]
    matrix = _reflect(windows, second, matrix, reflections, blocks)
    return active, [_roll(windows, second, x) for x in (matrix, *basis)]


def _roll(windows: Windows, back: bool, x: Value) -> Value:
    """Roll the rows by half a window, which is contiguous."""
    batch, rows, columns = cai.sizes(x)
    halves = 2 * windows.count
    order = (torch.arange(halves) + (-1 if back else 1)) % halves
    if isinstance(batch, int):
        order = (order + torch.arange(batch).unsqueeze(-1) * halves).reshape(-1, 1)
        parts = cai.reshape(x, [batch * halves, windows.before * columns])
        rolled = cai.gather_nd(parts, cai.tensor_constant(order.to(torch.int32), "places"))
        return cai.reshape(rolled, [batch, rows, columns])
    parts = cai.reshape(x, [batch, halves, windows.before * columns])
    places = cai.tensor_constant(order.to(torch.int32).reshape(1, -1, 1), "places")
    places = cai.broadcast_to(places, cai.sizes(parts))
    return cai.reshape(cai.gather_along_axis(parts, places, 1), [batch, rows, columns])


def _iterate(windows: Windows, matrix: Value, basis: Sequence[Value]) -> list[Value]:
    """Sweep until no matrix has an active block; return the last rows of those left, and both."""
    zeros = cai.zeros(matrix, [cai.size(matrix, 0), 1])
    patience = float(_PATIENCE + windows.count)

    def continues(state: Sequence[Value]) -> Value:
        return cai.logical_and(state[1], cai.less(state[0], _SWEEPS * windows.rows))

    def body(state: Sequence[Value]) -> list[Value]:
        k, _, age, end, matrix, *basis = state
        is_stuck = cai.greater(age, patience)
        active, found = _pass(windows, False, is_stuck, matrix, basis)
        if windows.count > 1:
            _, found = _pass(windows, True, is_stuck, found[0], found[1:])
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
    matrix = _turn_columns(windows, False, cai.pad(matrix, [(0, 0), sides, sides]))
    basis = [cai.pad(b, [(0, 0), sides, (0, 0)]) for b in basis]
    end, matrix, *basis = _iterate(windows, matrix, basis)
    matrix = _turn_columns(windows, True, matrix)
    nan = cai.where(cai.greater(end, -0.5), float("nan"), cai.like(end, 0.0))
    matrix = _inner(windows, _inner(windows, matrix, 1), 2)
    matrix = cai.add(matrix, cai.reshape(nan, [cai.size(nan, 0), 1, 1]))
    return matrix, [_inner(windows, b, 1) for b in basis]


def _turn_columns(windows: Windows, back: bool, x: Value) -> Value:
    if windows.count == 1:
        return x
    return cai.transpose(_roll(windows, back, cai.transpose(x, [0, 2, 1])), [0, 2, 1])


def _inner(windows: Windows, x: Value, axis: int) -> Value:
    return cai.slice_axis(x, axis, windows.before, windows.before + windows.rows)
