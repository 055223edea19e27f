"""Lower sizes and Python operators on dynamic numbers."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from ..ir import dialect as cai
from ..ir import shapes
from ..ir.dialect import Dim, Value
from ..lowering import Axis, Ctx, case, lowers, lowers_function
from ..lowering.cases import f32, i64
from ..torch_compat import aten, sym_sqrt
from .pointwise.rounding import ceil, floor


@lowers(aten.sym_size.int, cases=[case(f32(2, 3), 1), case(f32(2, 3), -2)])
def sym_size(ctx: Ctx, x: Value, dim: Axis) -> Dim:
    return cai.size(x, dim)


@lowers(aten.sym_numel.default, cases=[case(f32(2, 3))])
def sym_numel(ctx: Ctx, x: Value) -> Dim:
    return shapes.product(cai.sizes(x))


@lowers(aten._local_scalar_dense.default, cases=[case(i64(1)), case(f32())])
def item(ctx: Ctx, x: Value) -> Value:
    return cai.cast(shapes.scalar(x), ctx.out_dtype)


def _as_value(number: Any, dtype: torch.dtype) -> Value:
    return cai.cast(number, dtype) if isinstance(number, Value) else cai.constant(number, dtype)


def _is_float(number: Any) -> bool:
    return cai.is_float(number) if isinstance(number, Value) else isinstance(number, float)


def _meet(*numbers: Any, as_float: bool = False) -> list[Value]:
    dtype = torch.float32 if as_float or any(map(_is_float, numbers)) else torch.int32
    return [_as_value(n, dtype) for n in numbers]


def _arithmetic(target: Any, op: Callable[..., Value], *, as_float: bool = False) -> None:
    @lowers_function(target)
    def lower(ctx: Ctx, *numbers: Any) -> Value:
        return op(*_meet(*numbers, as_float=as_float))


def _nonzero(x: Value) -> Value:
    """Replace zero divisors with 1: the runtime crashes on a division by zero; Python raises."""
    return cai.where(cai.equal(x, cai.like(x, 0)), cai.like(x, 1), x)


def _modulo(x: Value, y: Value) -> Value:
    """Return Python's `x % y`: the result has the divisor's sign."""
    divisor = _nonzero(y)
    return cai.sub(x, cai.mul(cai.floor_divide(x, divisor), divisor))


_arithmetic(operator.add, cai.add)
_arithmetic(operator.sub, cai.sub)
_arithmetic(operator.mul, cai.mul)
_arithmetic(operator.floordiv, lambda x, y: cai.floor_divide(x, _nonzero(y)))
_arithmetic(operator.mod, _modulo)
_arithmetic(operator.truediv, cai.div, as_float=True)
_arithmetic(operator.pow, cai.pow_)
_arithmetic(operator.neg, cai.neg)
_arithmetic(operator.abs, cai.abs_)
_arithmetic(torch.sym_max, cai.maximum)
_arithmetic(torch.sym_min, cai.minimum)
_arithmetic(operator.eq, cai.equal)
_arithmetic(operator.ne, cai.not_equal)
_arithmetic(operator.gt, cai.greater)
_arithmetic(operator.lt, cai.less)
_arithmetic(operator.ge, lambda x, y: cai.logical_not(cai.greater(y, x)))
_arithmetic(operator.le, lambda x, y: cai.logical_not(cai.greater(x, y)))
_arithmetic(sym_sqrt, cai.sqrt, as_float=True)
_arithmetic(math.sqrt, cai.sqrt, as_float=True)


@lowers_function(torch.sym_float)
def sym_float(ctx: Ctx, x: Any) -> Value:
    return _as_value(x, torch.float32)


@lowers_function(torch.sym_int, math.trunc)
def sym_int(ctx: Ctx, x: Any) -> Value:
    return _as_value(x, torch.int32)


@lowers_function(math.floor)
def math_floor(ctx: Ctx, x: Value) -> Value:
    return cai.cast(floor(x), torch.int32) if cai.is_float(x) else x


@lowers_function(math.ceil)
def math_ceil(ctx: Ctx, x: Value) -> Value:
    return cai.cast(ceil(x), torch.int32) if cai.is_float(x) else x


@lowers_function(builtins.round)
def round_(ctx: Ctx, x: Any, digits: int | None = None) -> Value:
    """Round to the nearest integer, ties to even; with digits the result stays a float."""
    if digits is not None:
        scale = cai.constant(10.0**digits, torch.float32)
        return cai.div(cai.round_(cai.mul(_as_value(x, torch.float32), scale)), scale)
    return cai.cast(cai.round_(x), torch.int32) if _is_float(x) else _as_value(x, torch.int32)


@lowers_function(torch.sym_sum)
def sym_sum(ctx: Ctx, terms: Any) -> Value:
    total, *rest = _meet(*terms)
    for term in rest:
        total = cai.add(total, term)
    return total


@lowers_function(torch.sym_not, operator.not_)
def sym_not(ctx: Ctx, x: Value) -> Value:
    return cai.logical_not(x)


@lowers_function(operator.and_)
def and_(ctx: Ctx, x: Any, y: Any) -> Value:
    return cai.logical_and(_as_value(x, torch.bool), _as_value(y, torch.bool))


@lowers_function(operator.or_)
def or_(ctx: Ctx, x: Any, y: Any) -> Value:
    return cai.logical_or(_as_value(x, torch.bool), _as_value(y, torch.bool))


@lowers_function(torch.sym_ite)
def sym_ite(ctx: Ctx, condition: Any, then: Any, otherwise: Any) -> Value:
    return cai.where(_as_value(condition, torch.bool), *_meet(then, otherwise))
