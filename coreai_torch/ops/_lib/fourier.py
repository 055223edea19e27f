"""Discrete Fourier transforms of the leading axis, in real arithmetic.

A signal is a matrix `[length, columns]`. The run time multiplies `[16, 16] @ [16, 4096]` ten
times as fast as `[4096, 16] @ [16, 16]` (coreai-core 1.0.0b3), so the constant is always the left
operand and the columns grow from factor to factor.

A length is split into factors of about 32 (Cooley and Tukey): each is one product with a small
matrix, then one product with the twiddle factors. A prime factor above 256 becomes a circular
convolution of a smooth length (Bluestein). All constants are computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value

DENSE = 256  # up to here the transform is one product with its full matrix
_RADIX = 32  # the factors of a longer transform are near this size


@dataclass(frozen=True)
class Signal:
    """Real and imaginary part, `[length, columns]` each; a real signal has no second part."""

    real: Value
    imaginary: Value | None = None

    def parts(self) -> list[Value]:
        return [self.real] if self.imaginary is None else [self.real, self.imaginary]

    def narrow(self, start: int, end: int) -> Signal:
        return Signal(*(cai.slice_axis(p, 0, start, end) for p in self.parts()))

    def view(self, dims: Sequence[Dim]) -> Signal:
        return Signal(*(cai.reshape(p, dims) for p in self.parts()))


def unit_circle(turns: Tensor, length: int, sign: int) -> Tensor:
    """Return `exp(sign * 2 pi i * turns / length)`; whole turns are removed as integers."""
    angle = (turns % length).to(torch.float64) * (sign * 2 * math.pi / length)
    return torch.complex(angle.cos(), angle.sin())


def _constant(table: Tensor) -> Value:
    return cai.tensor_constant(table.to(torch.float32).contiguous(), "fourier")


def _left_product(matrix: Tensor, x: Signal, wants_imaginary: bool = True) -> Signal:
    """Return `matrix @ x` for a complex matrix, as one real product."""
    rows = matrix.shape[0]
    real_rows = matrix.real if x.imaginary is None else torch.cat([matrix.real, -matrix.imag], 1)
    if not wants_imaginary:
        return Signal(cai.matmul(_constant(real_rows), cai.concat(0, x.parts())))
    other = matrix.imag if x.imaginary is None else torch.cat([matrix.imag, matrix.real], 1)
    both = cai.matmul(_constant(torch.cat([real_rows, other])), cai.concat(0, x.parts()))
    return Signal(cai.slice_axis(both, 0, 0, rows), cai.slice_axis(both, 0, rows, 2 * rows))


def _times(x: Signal, factor: Tensor) -> Signal:
    """Return the product with a complex constant that broadcasts."""
    cosine, sine = _constant(factor.real), _constant(factor.imag)
    if x.imaginary is None:
        return Signal(cai.mul(x.real, cosine), cai.mul(x.real, sine))
    return Signal(
        cai.sub(cai.mul(x.real, cosine), cai.mul(x.imaginary, sine)),
        cai.add(cai.mul(x.real, sine), cai.mul(x.imaginary, cosine)),
    )


def _dft_matrix(rows: int, length: int, sign: int) -> Tensor:
    return unit_circle(torch.arange(rows)[:, None] * torch.arange(length), length, sign)


def _factor(length: int) -> int:
    """Return the divisor to split off: about the root that leaves equal factors, or `length`."""
    if length <= _RADIX:
        return length
    count = math.ceil(math.log(length) / math.log(_RADIX))
    wanted = length ** (1 / count)
    divisors = [d for d in range(2, min(length, DENSE + 1)) if length % d == 0]
    return min(divisors, key=lambda d: abs(math.log(d / wanted)), default=length)


def _smooth(least: int) -> int:
    """Return the least number not below `least` whose prime factors are 2, 3 and 5."""
    found = least
    while True:
        rest = found
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return found
        found += 1


def _split(x: Signal, first: int, length: int, columns: Dim, sign: int, scale: float) -> Signal:
    """Transform the residues, `[first, rest * columns]` to `[rest, rows * columns]`."""
    rest = length // first
    rows = first if x.imaginary is not None else first // 2 + 1  # the others are conjugates
    x = x.view([first, shapes.mul(columns, rest)])
    x = _left_product(_dft_matrix(rows, first, sign) * scale, x).view([rows, rest, columns])
    turns = torch.arange(rows)[:, None] * torch.arange(rest)
    x = _times(x, unit_circle(turns, length, sign)[:, :, None])
    turned = Signal(*(cai.transpose(p, [1, 0, 2]) for p in x.parts()))
    return turned.view([rest, shapes.mul(columns, rows)])


def _bluestein(x: Signal, length: int, columns: Dim, sign: int, scale: float) -> Signal:
    """Transform a prime length as a convolution with a chirp: `j k = (j² + k² - (k - j)²) / 2`."""
    padded = _smooth(2 * length - 1)
    squares = torch.arange(length).square() % (2 * length)
    chirp = unit_circle(squares, 2 * length, sign)
    response = torch.zeros(padded, dtype=torch.complex128)
    response[:length] = chirp.conj()
    response[padded - length + 1 :] = chirp.conj()[1:].flip(0)
    spectrum = torch.fft.fft(response)[:, None] / padded
    x = _times(x, chirp[:, None])
    x = Signal(*(cai.pad(p, [(0, padded - length), (0, 0)]) for p in x.parts()))
    x = _times(transform(x, padded, columns, -1), spectrum)
    x = transform(x, padded, columns, 1).narrow(0, length)
    return _times(x, chirp[:, None] * scale)


def transform(
    x: Signal,
    length: int,
    columns: Dim,
    sign: int,
    scale: float = 1.0,
    wants_imaginary: bool = True,
) -> Signal:
    """Return the transform of each column; the sign is that of the exponent."""
    first = _factor(length)
    if first == length:
        if length > DENSE:
            return _bluestein(x, length, columns, sign, scale)
        return _left_product(_dft_matrix(length, length, sign) * scale, x, wants_imaginary)
    if x.imaginary is None:
        x = Signal(x.real, cai.zeros(x.real, [length, columns]))
    halves = _split(x, first, length, columns, sign, scale)
    return transform(
        halves, length // first, shapes.mul(columns, first), sign, 1.0, wants_imaginary
    ).view([length, columns])


def transform_of_real(x: Value, length: int, columns: Dim, scale: float, kept: int) -> Signal:
    """Return the first `kept` rows of the forward transform of real columns.

    Half of the residues of the first factor are computed. Row `(first - j) + first * (rest - 1 -
    k)` of the spectrum is the conjugate of row `j + first * k`.
    """
    first = _factor(length)
    if first == length:
        if length > DENSE:
            return _bluestein(Signal(x), length, columns, -1, scale).narrow(0, kept)
        return _left_product(_dft_matrix(kept, length, -1) * scale, Signal(x))
    rest, rows = length // first, first // 2 + 1
    inner = _split(Signal(x), first, length, columns, -1, scale)
    inner = transform(inner, rest, shapes.mul(columns, rows), -1).view([rest, rows, columns])
    needed = -(-kept // first)
    halves: list[Value] = []
    for part, sign in zip(inner.parts(), (1, -1), strict=True):
        computed = cai.slice_axis(part, 0, 0, needed)
        mirror = cai.slice_axis(part, 0, rest - needed, rest)
        mirror = cai.slice_axis(mirror, 1, 1, (first + 1) // 2)
        if first > 2:
            mirror = cai.reverse(mirror, [0, 1])
            mirror = mirror if sign == 1 else cai.neg(mirror)
            computed = cai.concat(1, [computed, mirror])
        halves.append(cai.reshape(computed, [needed * first, columns]))
    return Signal(*halves).narrow(0, kept)


def inverse_to_real(x: Signal, length: int, columns: Dim, scale: float) -> Value:
    """Return the inverse transform of the first half of a spectrum whose other half mirrors it."""
    kept, mirrored = length // 2 + 1, (length - 1) // 2
    x = x.narrow(0, kept)
    if not mirrored:
        return transform(x, length, columns, 1, scale, wants_imaginary=False).real
    parts = []
    for part, sign in zip(x.parts(), (1, -1), strict=True):
        other = cai.reverse(cai.slice_axis(part, 0, 1, 1 + mirrored), [0])
        parts.append(cai.concat(0, [part, other if sign == 1 else cai.neg(other)]))
    return transform(Signal(*parts), length, columns, 1, scale, wants_imaginary=False).real
