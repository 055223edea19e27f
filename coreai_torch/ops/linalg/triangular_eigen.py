"""Eigenvalues and eigenvectors of matrices with blocks of one and two rows on the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Value
from .francis import as_number, mask

_EPSILON = 1.2e-7
_LARGE = 1e8  # an element of a vector, above which the vector is scaled


@dataclass(frozen=True)
class Blocks:
    """Values `[batch, rows]` of the diagonal blocks.

    Each block of two rows has one eigenvalue at each row. `rotation` has real and imaginary part of
    the diagonal of unitary matrices that make the blocks triangular, and the real elements above.
    """

    real: Value
    imaginary: Value
    rotation: tuple[Value, Value, Value]


def diagonal_blocks(matrix: Value) -> Blocks:
    """Return the eigenvalues and the rotations of each block."""
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    identity = torch.eye(rows)
    is_below = identity.roll(1, 0).tril(-1)

    def elements(at: torch.Tensor, axis: int) -> Value:
        return cai.reshape(cai.reduce_sum(cai.mul(matrix, mask(at)), [axis]), [batch, rows])

    def before(x: Value) -> Value:
        """Return the element of the row before, or 0."""
        return cai.matmul(x, mask(is_below.T))

    def after(x: Value) -> Value:
        return cai.matmul(x, mask(is_below))

    diagonal, below = elements(identity, 2), elements(is_below, 2)
    is_second = cai.greater(cai.abs(below), 0.0)
    is_first = cai.greater(after(as_number(is_second)), 0.0)
    half = cai.mul(cai.sub(before(diagonal), diagonal), 0.5)
    product = cai.mul(elements(is_below.T, 1), below)
    offset, first, second, size = _of_pair(half, product, diagonal)

    def by_row(at_first: Value, at_second: Value, otherwise: Value | float) -> Value:
        alone = cai.where(is_first, after(at_first), otherwise)
        return cai.where(is_second, at_second, alone)

    # The eigenvector of the first value is (offset + size i, below).
    squares = cai.add(cai.mul(offset, offset), cai.mul(size, size))
    length = cai.sqrt(cai.add(squares, cai.mul(below, below)))
    length = cai.where(is_second, length, 1.0)
    offset, size_part, lower = (cai.div(v, length) for v in (offset, size, below))
    rotation = (
        by_row(offset, offset, 1.0),
        by_row(size_part, cai.neg(size_part), 0.0),
        cai.where(is_second, lower, 0.0),
    )
    return Blocks(by_row(first, second, diagonal), by_row(size, cai.neg(size), 0.0), rotation)


def _of_pair(half: Value, product: Value, diagonal: Value) -> tuple[Value, ...]:
    """Return the first value less the diagonal, both real parts, and the imaginary part."""
    square = cai.add(cai.mul(half, half), product)
    root = cai.sqrt(cai.abs(square))
    is_real = cai.logical_not(cai.less(square, 0.0))
    # Of two real values, the one that is farther from the second diagonal element has no
    # cancellation; the other one follows from the product.
    far = cai.add(half, cai.where(cai.less(half, 0.0), cai.neg(root), root))
    near = cai.neg(cai.div(product, cai.where(cai.equal(far, 0.0), 1.0, far)))
    offset = cai.where(is_real, far, half)
    first = cai.add(offset, diagonal)
    second = cai.add(cai.where(is_real, near, half), diagonal)
    size = cai.where(is_real, 0.0, root)
    return offset, first, second, size


def _rotations(blocks: Blocks) -> tuple[Value, Value]:
    """Return the real part of the rotations, and the diagonal of the imaginary part."""
    real, imaginary, lower = blocks.rotation
    batch, rows = cai.size(real, 0), real.type.shape[-1]
    here = torch.arange(rows)
    is_below = mask(here.unsqueeze(-1) == here + 1)
    is_above = mask(here.unsqueeze(-1) == here - 1)
    down, across = [batch, rows, 1], [batch, 1, rows]
    matrix = cai.mul(cai.reshape(real, across), mask(torch.eye(rows)))
    matrix = cai.add(matrix, cai.mul(cai.reshape(lower, down), is_below))
    matrix = cai.sub(matrix, cai.mul(cai.reshape(lower, across), is_above))
    return matrix, imaginary


def _make_triangular(matrix: Value, real: Value, imaginary: Value) -> tuple[Value, Value]:
    """Return real and imaginary part above the diagonal of the rotated matrix."""
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    down = cai.reshape(imaginary, [batch, rows, 1])
    turned = cai.transpose(real, [0, 2, 1])
    first = cai.matmul(matrix, real)
    second = cai.mul(matrix, cai.reshape(imaginary, [batch, 1, rows]))
    is_above = mask(torch.ones(rows, rows).triu(1))
    return (
        cai.mul(cai.add(cai.matmul(turned, first), cai.mul(second, down)), is_above),
        cai.mul(cai.sub(cai.matmul(turned, second), cai.mul(first, down)), is_above),
    )


def _substitute(upper: tuple[Value, Value], blocks: Blocks) -> Value:
    """Return the eigenvectors of triangular matrices, real parts beside imaginary parts.

    A step computes one row of all vectors; the first row is the last.
    """
    batch, rows = cai.size(upper[0], 0), upper[0].type.shape[-1]
    both = cai.concat(2, upper)  # real and imaginary part of each row
    size = cai.reduce_max(cai.reduce_sum(cai.abs(both), [2]), [1])
    values = cai.add(cai.abs(blocks.real), cai.abs(blocks.imaginary))
    size = cai.add(size, cai.reshape(cai.reduce_max(values, [1]), [batch, 1, 1]))
    least = cai.maximum(cai.reshape(cai.mul(size, _EPSILON), [batch, 1]), 1e-30)
    positions = torch.arange(rows, dtype=torch.float32)

    def body(state: Sequence[Value]) -> list[Value]:
        k, found = state
        at = cai.reshape(cai.slice_axis(both, 1, k, shapes.add(k, 1)), [batch, 2, rows])
        sums = cai.reshape(cai.matmul(at, found), [batch, 4, rows])
        a, b, c, d = (
            cai.reshape(cai.slice_axis(sums, 1, i, i + 1), [batch, rows]) for i in range(4)
        )
        here = cai.cast(k, torch.float32)
        is_here = as_number(cai.equal(mask(positions), here))
        gaps = [
            cai.sub(v, cai.reduce_sum(cai.mul(v, is_here), [1]))
            for v in (blocks.real, blocks.imaginary)
        ]
        row = _divide((cai.sub(a, d), cai.add(b, c)), gaps, least)
        is_later = as_number(cai.greater(mask(positions), here))
        row = [cai.mul(part, is_later) for part in row]
        length = cai.add(*map(cai.abs, row))
        factor = cai.where(cai.greater(length, _LARGE), cai.div(1.0, length), 1.0)
        new = cai.reshape(cai.concat(1, row), [batch, 1, 2 * rows])
        is_row = cai.reshape(is_here, [1, rows, 1])
        scale = cai.reshape(cai.concat(1, [factor, factor]), [batch, 1, 2 * rows])
        found = cai.mul(cai.add(found, cai.mul(is_row, new)), scale)
        return [cai.sub(k, 1), found]

    identity = mask(torch.eye(rows, 2 * rows).unsqueeze(0))
    start = [cai.i32(rows - 2), cai.broadcast_to(identity, [batch, rows, 2 * rows])]
    return graph.loop(start, lambda s: cai.greater(s[0], -1), body)[1]


def _divide(row: tuple[Value, Value], by: Sequence[Value], least: Value) -> list[Value]:
    """Divide complex numbers; a divisor below `least` counts as `least`."""
    size = cai.maximum(*map(cai.abs, by))
    is_small = cai.less(size, least)
    size = cai.where(is_small, least, size)
    x, y = (cai.div(part, size) for part in by)
    x, y = cai.where(is_small, 1.0, x), cai.where(is_small, 0.0, y)
    square = cai.add(cai.mul(x, x), cai.mul(y, y))
    real = cai.add(cai.mul(row[0], x), cai.mul(row[1], y))
    imaginary = cai.sub(cai.mul(row[1], x), cai.mul(row[0], y))
    return [cai.div(cai.div(part, square), size) for part in (real, imaginary)]


def eigenvectors(matrix: Value, basis: Value, blocks: Blocks) -> tuple[Value, Value]:
    """Return parts of the unit eigenvectors of `basis @ matrix @ basisᵀ` as columns."""
    batch, rows = cai.size(matrix, 0), matrix.type.shape[-1]
    real, imaginary = _rotations(blocks)
    found = _substitute(_make_triangular(matrix, real, imaginary), blocks)
    turned = cai.matmul(real, found)
    other = cai.mul(found, cai.reshape(imaginary, [batch, rows, 1]))
    (a, b), (c, d) = (
        (cai.slice_axis(v, 2, 0, rows), cai.slice_axis(v, 2, rows, 2 * rows))
        for v in (turned, other)
    )
    # A real eigenvalue has a real vector.
    is_complex = cai.not_equal(blocks.imaginary, 0.0)
    is_complex = as_number(cai.reshape(is_complex, [batch, 1, rows]))
    first = cai.matmul(basis, cai.sub(a, d))
    second = cai.mul(cai.matmul(basis, cai.add(b, c)), is_complex)
    return unit_columns(first, second)


def unit_columns(first: Value, second: Value) -> tuple[Value, Value]:
    """Divide the columns of complex matrices by their lengths."""
    largest = cai.maximum(*(cai.reduce_max(cai.abs(v), [1]) for v in (first, second)))
    first, second = (cai.div(v, largest) for v in (first, second))
    squares = cai.add(cai.mul(first, first), cai.mul(second, second))
    length = cai.sqrt(cai.reduce_sum(squares, [1]))
    return cai.div(first, length), cai.div(second, length)
