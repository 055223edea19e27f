"""Functions of one number: a table of those the dialect has, then the composed ones."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir import dialect as cai
from ..ir.dialect import Unary, Value
from ..lowering import Ctx, Promote, case, lowers
from ..lowering.cases import Case, T, b1, bf16, c64, f16, f32, i32, i64
from .sign import distance

aten = torch.ops.aten
_INF, _NAN = float("inf"), float("nan")
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.7, 3.25, -20.0, 88.0, 1e-8, _INF, -_INF, _NAN)
_ALIKE = [f32(13, values=_EDGES), f32(2, 3), f16(5), bf16(5), i32(4), i64(4), b1(3), f32()]
_COMPLEX = c64(4)


def _one_to_one(target: Any, op: Unary, *more: T) -> None:
    has_complex = _COMPLEX in more

    @lowers(target, promote=Promote.RESULT, cases=[case(t) for t in (*_ALIKE, *more)])
    def lower(ctx: Ctx, x: Value) -> Value:
        if cai.is_complex(x) and not has_complex:
            ctx.refuse("of complex numbers")
        return op(x)


_one_to_one(aten.acos.default, cai.acos)
_one_to_one(aten.acosh.default, cai.acosh, f32(4, low=1.0, high=90.0))
_one_to_one(aten.asin.default, cai.asin)
_one_to_one(aten.asinh.default, cai.asinh)
_one_to_one(aten.atan.default, cai.atan)
_one_to_one(aten.atanh.default, cai.atanh, f32(5, low=-0.99, high=0.99))
_one_to_one(aten.cos.default, cai.cos, _COMPLEX)
_one_to_one(aten.cosh.default, cai.cosh, _COMPLEX)
_one_to_one(aten.erf.default, cai.erf)
_one_to_one(aten.exp.default, cai.exp, _COMPLEX, f32(9, low=-80, high=88))
_one_to_one(aten.log.default, cai.log, _COMPLEX, f32(9, low=0.9, high=1.1))
_one_to_one(aten.sigmoid.default, cai.sigmoid, _COMPLEX)
_one_to_one(aten.sin.default, cai.sin, _COMPLEX, f32(9, low=-9e3, high=9e3))
_one_to_one(aten.sinh.default, cai.sinh, _COMPLEX)
_one_to_one(aten.tan.default, cai.tan, _COMPLEX)


def _root(x: Value) -> Value:
    """The complex root in the right half-plane, without subtracting what is nearly equal."""
    real, imaginary = cai.real_part(x), cai.imaginary_part(x)
    zero, half = cai.like(real, 0), cai.like(real, 0.5)
    long = cai.sqrt(cai.mul(half, cai.add(distance(real, imaginary), cai.abs_(real))))
    safe = cai.where(cai.equal(long, zero), cai.like(real, 1), long)
    short = cai.div(cai.mul(half, imaginary), safe)
    right = cai.logical_not(cai.less(real, zero))
    signed = cai.where(cai.less(imaginary, zero), cai.neg(long), long)
    return cai.create_complex(
        cai.where(right, long, cai.abs_(short)), cai.where(right, short, signed)
    )


_ROOTS = [case(t) for t in (*_ALIKE, _COMPLEX, f32(9, low=0.0, high=1e6))]


@lowers(aten.sqrt.default, promote=Promote.RESULT, cases=_ROOTS)
def sqrt(ctx: Ctx, x: Value) -> Value:
    return _root(x) if cai.is_complex(x) else cai.sqrt(x)


@lowers(aten.rsqrt.default, promote=Promote.RESULT, cases=_ROOTS)
def rsqrt(ctx: Ctx, x: Value) -> Value:
    return cai.div(cai.like(x, 1), _root(x)) if cai.is_complex(x) else cai.rsqrt(x)


@lowers(aten.tanh.default, promote=Promote.RESULT, cases=[case(t) for t in (*_ALIKE, _COMPLEX)])
def tanh(ctx: Ctx, x: Value) -> Value:
    return cai.div(cai.sinh(x), cai.cosh(x)) if cai.is_complex(x) else cai.tanh(x)


@lowers(
    aten.reciprocal.default,
    promote=Promote.RESULT,
    cases=[case(t) for t in (*_ALIKE, _COMPLEX)],
)
def reciprocal(ctx: Ctx, x: Value) -> Value:
    return cai.div(cai.like(x, 1), x)


_NEAR_ZERO = f32(8, values=(1e-8, -1e-8, 1e-4, -1e-4, 0.3, -0.3, 1e-40, 0.49))


@lowers(
    aten.exp2.default,
    promote=Promote.RESULT,
    cases=[case(t) for t in (*_ALIKE, f32(9, low=-100, high=100))],
)
def exp2(ctx: Ctx, x: Value) -> Value:
    return cai.pow_(cai.like(x, 2), x)


def expm1(x: Value) -> Value:
    """`exp(x) - 1` without the subtraction, which leaves 0 of 1e-8; float32 or wider."""
    half = cai.tanh(cai.mul(x, cai.like(x, 0.5)))
    return cai.mul(half, cai.add(cai.exp(x), cai.like(x, 1)))


@lowers(
    aten.expm1.default,
    promote=Promote.WIDE,
    cases=[
        case(_NEAR_ZERO, tolerance=(1e-6, 0.0), because="what is near zero is compared as such"),
        *(case(t) for t in _ALIKE),
    ],
)
def _expm1(ctx: Ctx, x: Value) -> Value:
    return expm1(x)


def log1p(x: Value) -> Value:
    """`log(1 + x)` without the addition where it rounds 1e-8 away; float32 or wider."""
    one, two = cai.like(x, 1), cai.like(x, 2)
    near = cai.mul(two, cai.atanh(cai.div(x, cai.add(two, x))))
    is_near = cai.less(cai.abs_(x), cai.like(x, 0.5))
    return cai.where(is_near, near, cai.log(cai.add(one, x)))


@lowers(
    aten.log1p.default,
    promote=Promote.WIDE,
    cases=[
        case(_NEAR_ZERO, tolerance=(1e-6, 0.0), because="what is near zero is compared as such"),
        case(f32(6, values=(0.5, -0.5, -0.99, 1e7, 3e38, -0.51))),
        *(case(t) for t in _ALIKE),
    ],
)
def _log1p(ctx: Ctx, x: Value) -> Value:
    return log1p(x)


def _log_to_base(x: Value, base: float) -> Value:
    """Whole where torch's is: a quotient alone makes 2.9999998 of log2(8)."""
    logarithm = cai.mul(cai.log(x), cai.like(x, 1 / math.log(base)))
    nearest = cai.round_(logarithm)
    is_power = cai.equal(cai.pow_(cai.like(x, base), nearest), x)
    return cai.where(is_power, nearest, logarithm)


def _exactly(powers: T) -> Case:
    return case(powers, tolerance=(0.0, 0.0), because="powers have whole logarithms")


@lowers(
    aten.log2.default,
    promote=Promote.WIDE,
    cases=[
        _exactly(f32(277, values=tuple(2.0**k for k in range(-149, 128)))),
        *(case(t) for t in _ALIKE),
    ],
)
def log2(ctx: Ctx, x: Value) -> Value:
    return _log_to_base(x, 2)


@lowers(
    aten.log10.default,
    promote=Promote.WIDE,
    cases=[
        _exactly(f32(11, values=tuple(10.0**k for k in range(11)))),
        *(case(t) for t in _ALIKE),
    ],
)
def log10(ctx: Ctx, x: Value) -> Value:
    return _log_to_base(x, 10)
