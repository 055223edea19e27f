"""Lower unary math functions: a table of dialect ops, and functions composed of them."""

from __future__ import annotations

import math
from typing import Any

from ...ir import dialect as cai
from ...ir.dialect import Unary, Value
from ...lowering import Ctx, Promote, case, lowers
from ...lowering.cases import Case, T, b1, bf16, c64, f16, f32, i32, i64
from ...torch_compat import aten
from .._lib import expm1_log1p
from . import complex as complex_functions
from .complex import quotient

_INF, _NAN = float("inf"), float("nan")
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.7, 3.25, -20.0, 88.0, 1e-8, _INF, -_INF, _NAN)
_ALIKE = [f32(13, values=_EDGES), f32(2, 3), f16(5), bf16(5), i32(4), i64(4), b1(3), f32()]
_COMPLEX = c64(4)
_FAR_OFF = c64(6, values=(3 - 4j, -3 + 0.5j, 9 + 1e-3j, -0.99j, 1e-4 + 1e-4j, -0.99 - 0.02j))


def _one_to_one(target: Any, op: Unary, complex_op: Unary | None, *more: T) -> None:
    given = (*_ALIKE, *more, *([_COMPLEX, _FAR_OFF] if complex_op else []))

    @lowers(target, promote=Promote.RESULT, cases=[case(t) for t in given])
    def lower(ctx: Ctx, x: Value) -> Value:
        if not cai.is_complex(x):
            return op(x)
        return complex_op(x) if complex_op else ctx.refuse("complex operands are not supported")


_one_to_one(aten.acos.default, cai.acos, complex_functions.acos)
_one_to_one(aten.acosh.default, cai.acosh, complex_functions.acosh, f32(4, low=1.0, high=90.0))
_one_to_one(aten.asin.default, cai.asin, complex_functions.asin)
_one_to_one(aten.asinh.default, cai.asinh, complex_functions.asinh)
_one_to_one(aten.atan.default, cai.atan, complex_functions.atan)
_one_to_one(aten.atanh.default, cai.atanh, complex_functions.atanh, f32(5, low=-0.99, high=0.99))
_one_to_one(aten.cos.default, cai.cos, cai.cos)
_one_to_one(aten.cosh.default, cai.cosh, cai.cosh)
_one_to_one(aten.erf.default, cai.erf, None)
_one_to_one(aten.exp.default, cai.exp, cai.exp, f32(9, low=-80, high=88))
_one_to_one(aten.log.default, cai.log, cai.log, f32(9, low=0.9, high=1.1))
_one_to_one(aten.rsqrt.default, cai.rsqrt, complex_functions.rsqrt, f32(9, low=0.0, high=1e6))
_one_to_one(aten.sigmoid.default, cai.sigmoid, cai.sigmoid)
_one_to_one(aten.sin.default, cai.sin, cai.sin, f32(9, low=-9e3, high=9e3))
_one_to_one(aten.sinh.default, cai.sinh, cai.sinh)
_one_to_one(aten.sqrt.default, cai.sqrt, complex_functions.sqrt, f32(9, low=0.0, high=1e6))
_one_to_one(aten.tan.default, cai.tan, cai.tan)
_one_to_one(aten.tanh.default, cai.tanh, complex_functions.tanh)


@lowers(
    aten.reciprocal.default,
    promote=Promote.RESULT,
    cases=[case(t) for t in (*_ALIKE, _COMPLEX)],
)
def reciprocal(ctx: Ctx, x: Value) -> Value:
    return quotient(cai.like(x, 1), x)


_NEAR_ZERO = f32(8, values=(1e-8, -1e-8, 1e-4, -1e-4, 0.3, -0.3, 1e-40, 0.49))


@lowers(
    aten.exp2.default,
    promote=Promote.RESULT,
    cases=[case(t) for t in (*_ALIKE, f32(9, low=-100, high=100), _COMPLEX)],
)
def exp2(ctx: Ctx, x: Value) -> Value:
    return complex_functions.exp2(x) if cai.is_complex(x) else cai.pow_(cai.like(x, 2), x)


_SMALL = [
    case(_NEAR_ZERO, tolerance=(1e-6, 0.0), because="results near zero need a relative tolerance"),
    *(case(t) for t in (*_ALIKE, _COMPLEX, _FAR_OFF)),
]


@lowers(aten.expm1.default, promote=Promote.RESULT, cases=_SMALL)
def expm1(ctx: Ctx, x: Value) -> Value:
    return complex_functions.expm1(x) if cai.is_complex(x) else expm1_log1p.expm1(x)


@lowers(
    aten.log1p.default,
    promote=Promote.RESULT,
    cases=[*_SMALL, case(f32(6, values=(0.5, -0.5, -0.99, 1e7, 3e38, -0.51)))],
)
def log1p(ctx: Ctx, x: Value) -> Value:
    return complex_functions.log1p(x) if cai.is_complex(x) else expm1_log1p.log1p(x)


def _log_to_base(x: Value, base: float) -> Value:
    """Return the logarithm, exact for powers of the base.

    Guard of the first kind: the product alone gives 2.9999998 for log2(8), and 2 rounded down.
    """
    logarithm = cai.mul(cai.log(x), cai.like(x, 1 / math.log(base)))
    if cai.is_complex(x):
        return logarithm
    nearest = cai.round_(logarithm)
    is_power = cai.equal(cai.pow_(cai.like(x, base), nearest), x)
    return cai.where(is_power, nearest, logarithm)


def _exact_case(powers: T) -> Case:
    """Return a case of powers of the base, compared exactly."""
    return case(powers, tolerance=(0.0, 0.0), because="logarithms of powers are integers")


@lowers(
    aten.log2.default,
    promote=Promote.WIDE,
    cases=[
        _exact_case(f32(277, values=tuple(2.0**k for k in range(-149, 128)))),
        *(case(t) for t in (*_ALIKE, _COMPLEX)),
    ],
)
def log2(ctx: Ctx, x: Value) -> Value:
    return _log_to_base(x, 2)


@lowers(
    aten.log10.default,
    promote=Promote.WIDE,
    cases=[
        _exact_case(f32(11, values=tuple(10.0**k for k in range(11)))),
        *(case(t) for t in (*_ALIKE, _COMPLEX)),
    ],
)
def log10(ctx: Ctx, x: Value) -> Value:
    return _log_to_base(x, 10)
