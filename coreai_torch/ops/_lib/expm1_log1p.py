"""Compute expm1 and log1p without cancellation near zero.

Guards of the first kind: `exp(x) - 1` and `log(1 + x)` are 0 at 1e-8.
"""

from __future__ import annotations

from ...ir import dialect as cai
from ...ir.dialect import Value


def expm1(x: Value) -> Value:
    """Return `exp(x) - 1` as `tanh(x / 2) * (exp(x) + 1)`: the subtraction gives 0 for 1e-8."""
    half = cai.tanh(cai.mul(x, cai.like(x, 0.5)))
    return cai.mul(half, cai.add(cai.exp(x), cai.like(x, 1)))


def log1p(x: Value) -> Value:
    """Return `log(1 + x)`; below 0.5 by `2 * atanh(x / (2 + x))`, as `1 + 1e-8` rounds to 1."""
    one, two = cai.like(x, 1), cai.like(x, 2)
    near = cai.mul(two, cai.atanh(cai.div(x, cai.add(two, x))))
    is_near = cai.less(cai.abs_(x), cai.like(x, 0.5))
    return cai.where(is_near, near, cai.log(cai.add(one, x)))
