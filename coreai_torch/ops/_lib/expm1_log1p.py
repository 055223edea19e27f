"""`exp(x) - 1` and `log(1 + x)`, whole where they are small; for float32 and wider."""

from __future__ import annotations

from ...ir import dialect as cai
from ...ir.dialect import Value


def expm1(x: Value) -> Value:
    """Without the subtraction, which leaves 0 of 1e-8."""
    half = cai.tanh(cai.mul(x, cai.like(x, 0.5)))
    return cai.mul(half, cai.add(cai.exp(x), cai.like(x, 1)))


def log1p(x: Value) -> Value:
    """Without the addition where it rounds 1e-8 away."""
    one, two = cai.like(x, 1), cai.like(x, 2)
    near = cai.mul(two, cai.atanh(cai.div(x, cai.add(two, x))))
    is_near = cai.less(cai.abs_(x), cai.like(x, 0.5))
    return cai.where(is_near, near, cai.log(cai.add(one, x)))
