"""Discrete Fourier transforms of the leading axis, in real arithmetic.

A signal is a matrix `[length, columns]`. A length is split into factors of about 32 (Cooley and
Tukey): each factor is a product with a small matrix, then a product with the twiddle factors. A
prime factor above 256 becomes a circular convolution of a smooth length (Bluestein). All constants
are computed in float64.

The runtime's cost per element (coreai-core 1.0.0b3) determines the form: a product with a
`[64, 64]` matrix on the left takes 10 ns and on the right 90 ns, an elementwise product 2 ns, a
transpose 4 ns, a gathered row 7 ns, but a slice 20 ns, a concatenation 30 to 55 ns and a padding
200 ns. Therefore constants are left operands, and real and imaginary rows stay in one matrix
between two factors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value

DENSE = 256  # up to this length the transform is one product with its full matrix
_RADIX = 32  # the factors of a longer transform are near this size


@dataclass(frozen=True)
class Signal:
    """A signal as `[real]`, `[real, imaginary]` or one matrix: real rows above imaginary rows."""

    blocks: list[Value]

    def view(self, dims: Sequence[Dim]) -> Signal:
        """Return the signal with `dims` instead of `[length, columns]`."""
        return Signal([cai.reshape(b, dims) for b in self.blocks])

    def take(self, rows: Dim) -> Signal:
        """Return the first `rows` rows of a signal that is not stacked."""
        return Signal([cai.slice_axis(b, 0, 0, rows) for b in self.blocks])


def unit_circle(turns: Tensor, length: int, sign: int) -> Tensor:
    """Return `exp(sign * 2 pi i * turns / length)`; whole turns are removed as integers."""
    angle = (turns % length).to(torch.float64) * (sign * 2 * math.pi / length)
    return torch.complex(angle.cos(), angle.sin())


def _constant(table: Tensor) -> Value:
    return cai.tensor_constant(table.to(torch.float32).contiguous(), "fourier")


def _product(matrix: Tensor, x: Signal) -> Value:
    """Return `matrix @ x` for a real matrix with a column for each real and imaginary row."""
    terms, start = [], 0
    for block in x.blocks:
        end = start + block.type.shape[0]
        terms.append(cai.matmul(_constant(matrix[:, start:end]), block))
        start = end
    return functools.reduce(cai.add, terms)


def _real_rows(matrix: Tensor) -> Tensor:
    return torch.cat([matrix.real, -matrix.imag], 1)


def _imaginary_rows(matrix: Tensor) -> Tensor:
    return torch.cat([matrix.imag, matrix.real], 1)


def _times(x: Signal, factor: Tensor) -> Signal:
    """Return the product of `[real]` or `[real, imaginary]` with a complex constant."""
    cosine, sine = _constant(factor.real), _constant(factor.imag)
    if len(x.blocks) == 1:
        return Signal([cai.mul(x.blocks[0], cosine), cai.mul(x.blocks[0], sine)])
    real, imaginary = x.blocks
    return Signal(
        [
            cai.sub(cai.mul(real, cosine), cai.mul(imaginary, sine)),
            cai.add(cai.mul(real, sine), cai.mul(imaginary, cosine)),
        ]
    )


def _dft_matrix(rows: int, length: int, sign: int) -> Tensor:
    return unit_circle(torch.arange(rows)[:, None] * torch.arange(length), length, sign)


def _factor(length: int) -> int:
    """Return the divisor to split off: near the root that gives equal factors, or `length`."""
    if length <= _RADIX:
        return length
    count = math.ceil(math.log(length) / math.log(_RADIX))
    wanted = length ** (1 / count)
    divisors = [d for d in range(2, min(length, DENSE + 1)) if length % d == 0]
    return min(divisors, key=lambda d: abs(math.log(d / wanted)), default=length)


def smooth(least: int) -> int:
    """Return the smallest number >= `least` whose prime factors are 2, 3 and 5."""
    found = least
    while True:
        rest = found
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return found
        found += 1


def _split(
    x: Signal, first: int, rows: int, length: int, columns: Dim, sign: int, scale: float
) -> Signal:
    """Transform the first factor: `[first * rest, columns]` to a stacked `[rest, rows * columns]`.

    The multiplication by `c + i s` needs the transform and its product with i. A second matrix
    product computes the latter, which is cheaper than slicing real and imaginary rows apart.
    """
    rest = length // first
    matrix = _dft_matrix(rows, first, sign) * scale
    real, imaginary = _real_rows(matrix), _imaginary_rows(matrix)
    x = Signal(
        [cai.reshape(b, [-(-b.type.shape[0] // rest), shapes.mul(columns, rest)]) for b in x.blocks]
    )
    turns = torch.arange(rows)[:, None] * torch.arange(rest)
    twiddle = unit_circle(turns, length, sign)[:, :, None].repeat(2, 1, 1)
    plain = cai.reshape(_product(torch.cat([real, imaginary]), x), [2 * rows, rest, columns])
    turned = cai.reshape(_product(torch.cat([-imaginary, real]), x), [2 * rows, rest, columns])
    both = cai.add(
        cai.mul(plain, _constant(twiddle.real)), cai.mul(turned, _constant(twiddle.imag))
    )
    both = cai.transpose(cai.reshape(both, [2, rows, rest, columns]), [0, 2, 1, 3])
    return Signal([cai.reshape(both, [2 * rest, shapes.mul(columns, rows)])])


def _bluestein(x: Signal, length: int, columns: Dim, sign: int, scale: float) -> Signal:
    """Transform a prime length as a convolution with a chirp: `j k = (j² + k² - (k - j)²) / 2`."""
    padded = smooth(2 * length - 1)
    squares = torch.arange(length).square() % (2 * length)
    chirp = unit_circle(squares, 2 * length, sign)
    response = torch.zeros(padded, dtype=torch.complex128)
    response[:length] = chirp.conj()
    response[padded - length + 1 :] = chirp.conj()[1:].flip(0)
    spectrum = torch.fft.fft(response)[:, None] / padded
    x = _times(x, chirp[:, None])
    zeros = cai.zeros(x.blocks[0], [padded - length, columns])
    x = Signal([cai.concat(0, [b, zeros]) for b in x.blocks])
    x = _times(transform(x, padded, columns, -1), spectrum)
    x = transform(x, padded, columns, 1).take(length)
    return _times(x, chirp[:, None] * scale)


def _split_parts(x: Signal, length: int) -> Signal:
    """Return real and imaginary rows as two matrices."""
    if x.blocks[0].type.shape[0] == length:
        return x
    (both,) = x.blocks
    return Signal([cai.slice_axis(both, 0, s, s + length) for s in (0, length)])


def transform(x: Signal, length: int, columns: Dim, sign: int, scale: float = 1.0) -> Signal:
    """Return `[real, imaginary]` of each transformed column; `sign` is the exponent's sign."""
    first = _factor(length)
    if first < length:
        inner = _split(x, first, first, length, columns, sign, scale)
        found = transform(inner, length // first, shapes.mul(columns, first), sign)
        return found.view([length, columns])
    if length > DENSE:
        return _bluestein(_split_parts(x, length), length, columns, sign, scale)
    matrix = _dft_matrix(length, length, sign) * scale
    return Signal([_product(rows(matrix), x) for rows in (_real_rows, _imaginary_rows)])


def _signed_rows(parts: Sequence[Value], place: Tensor, conjugated: Tensor) -> list[Value]:
    """Return rows of `[real, imaginary]`, some of them conjugated."""
    index = cai.tensor_constant(place.to(torch.int32)[:, None], "mirrored")
    real, imaginary = (cai.gather_nd(p, index) for p in parts)
    sign = _constant(torch.where(conjugated, -1.0, 1.0)[:, None])
    return [real, cai.mul(imaginary, sign)]


def transform_of_real(x: Value, length: int, columns: Dim, scale: float, kept: int) -> Signal:
    """Return the first `kept` rows of the forward transform of real columns.

    Only half of the residues of the first factor are computed. Row
    `(first - j) + first * (rest - 1 - k)` of the spectrum is the conjugate of row `j + first * k`.
    """
    first = _factor(length)
    if first == length:
        return transform(Signal([x]), length, columns, -1, scale).take(kept)
    rest, rows = length // first, first // 2 + 1
    inner = _split(Signal([x]), first, rows, length, columns, -1, scale)
    found = transform(inner, rest, shapes.mul(columns, rows), -1).view([rest * rows, columns])
    j, k = torch.arange(kept) % first, torch.arange(kept) // first
    mirrored = j >= rows
    place = torch.where(mirrored, (rest - 1 - k) * rows + first - j, k * rows + j)
    return Signal(_signed_rows(found.blocks, place, mirrored))


def inverse_to_real(x: Signal, length: int, columns: Dim, scale: float) -> Value:
    """Return the real inverse transform, given the first half of a Hermitian spectrum."""
    number = torch.arange(length)
    mirrored = number > length // 2
    place = torch.where(mirrored, length - number, number)
    whole = Signal(_signed_rows(x.blocks, place, mirrored))
    return transform(whole, length, columns, 1, scale).blocks[0]
