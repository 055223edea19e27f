"""Lower complex and polar, and compute quotients and powers of complex numbers."""

from __future__ import annotations

from typing import Any

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value
from ...lowering import Ctx, case, decomposes, lowers
from ...lowering.cases import f32
from ...torch_compat import aten
from .abs_atan2 import direction, distance

_INF, _NAN = float("inf"), float("nan")


@lowers(
    aten.complex.default,
    cases=[case(f32(2, 3), f32(2, 3)), case(f32(2, 3), f32(3)), case(f32(), f32())],
)
def complex_(ctx: Ctx, real: Value, imag: Value) -> Value:
    lead = ctx.out.rank
    sizes = [
        b if isinstance(a, int) and a == 1 else a
        for a, b in zip(_sizes_at_rank(real, lead), _sizes_at_rank(imag, lead), strict=True)
    ]
    dims = ctx.dims(sizes)
    return cai.create_complex(cai.broadcast_to(real, dims), cai.broadcast_to(imag, dims))


def _sizes_at_rank(x: Value, rank: int) -> list[cai.Dim]:
    """Return the sizes of `x` with leading ones up to `rank`."""
    return [*([1] * (rank - x.type.rank)), *cai.sizes(x)]


@decomposes(aten.polar.default, cases=[case(f32(2, 3), f32(2, 3)), case(f32(2, 3), f32(3))])
def polar(length: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return torch.complex(length * angle.cos(), length * angle.sin())


def quotient(x: Value, y: Value) -> Value:
    """Return `x / y` of numbers of one dtype; complex ones by Smith's algorithm, as in torch.

    The runtime (coreai-core 1.0.0b3) divides by the square of the magnitude, which is 0 or
    infinite for numbers below 1e-23 or above 1e19.
    """
    if not cai.is_complex(x):
        return cai.div(x, y)
    (a, b), (c, d) = ((cai.real_part(z), cai.imaginary_part(z)) for z in (x, y))
    zero, one = cai.like(c, 0), cai.like(c, 1)
    swapped = cai.less(cai.abs_(c), cai.abs_(d))
    large, small = cai.where(swapped, d, c), cai.where(swapped, c, d)
    is_zero = cai.equal(large, zero)
    ratio = cai.where(is_zero, zero, cai.div(small, cai.where(is_zero, one, large)))
    whole = cai.add(large, cai.mul(small, ratio))
    scale = cai.div(one, cai.where(is_zero, cai.abs_(large), whole))
    first, second = cai.where(swapped, b, a), cai.where(swapped, a, b)
    real = cai.mul(cai.add(first, cai.mul(second, ratio)), scale)
    imaginary = cai.mul(cai.sub(second, cai.mul(first, ratio)), scale)
    return cai.create_complex(real, cai.where(swapped, cai.neg(imaginary), imaginary))


def power(x: Value, exponent: Value, known: Any) -> Value:
    """Return `x ** exponent` of complex values; `known` is the exponent if it is a number.

    coreai.pow (coreai-core 1.0.0b3) returns NaN for a zero base, and treats a negative base without
    imaginary part as positive: (-8+0j) ** 3 would be 512.
    """
    if known == 0:
        return cai.broadcast_to(cai.like(x, 1), cai.sizes(x))
    if known in (1, 2, 3):
        square = x if known == 1 else cai.mul(x, x)
        return cai.mul(square, x) if known == 3 else square
    if known == -1:
        return quotient(cai.like(x, 1), x)
    real, imaginary = cai.real_part(x), cai.imaginary_part(x)
    exponent_real, exponent_imaginary = cai.real_part(exponent), cai.imaginary_part(exponent)
    zero, one = cai.like(real, 0), cai.like(real, 1)
    magnitude, angle = distance(real, imaginary), direction(imaginary, real)
    at_zero = cai.equal(magnitude, zero)
    log = cai.log(cai.where(at_zero, one, magnitude))
    scale = cai.exp(cai.sub(cai.mul(exponent_real, log), cai.mul(exponent_imaginary, angle)))
    phase = cai.add(cai.mul(exponent_real, angle), cai.mul(exponent_imaginary, log))
    nan = cai.like(real, _NAN)
    falling, rising = cai.less(exponent_real, zero), cai.greater(exponent_real, zero)
    zero_result = (
        cai.where(rising, zero, cai.where(falling, cai.like(real, _INF), nan)),
        cai.where(rising, zero, nan),
    )
    result = cai.mul(scale, cai.cos(phase)), cai.mul(scale, cai.sin(phase))
    return cai.create_complex(
        *(cai.where(at_zero, z, f) for z, f in zip(zero_result, result, strict=True))
    )
