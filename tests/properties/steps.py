"""The steps of random graphs: each function takes choices and returns a step, or None."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
import torch.nn.functional as F
from choices import DTYPES, Choices
from pool import Step, Value

Maker = Callable[[Choices], Step | None]
MAKERS: dict[str, Maker] = {}


def makes(maker: Maker) -> Maker:
    MAKERS[maker.__name__] = maker
    return maker


def is_float(operand: Value) -> bool:
    return operand.eager.is_floating_point()


def is_integer(operand: Value) -> bool:
    return not operand.eager.is_floating_point() and operand.eager.dtype is not torch.bool


def is_number(operand: Value) -> bool:
    return operand.eager.dtype is not torch.bool


def is_bool(operand: Value) -> bool:
    return operand.eager.dtype is torch.bool


def is_exact(operand: Value) -> bool:
    return operand.exact


def has_axes(operand: Value) -> bool:
    return operand.eager.dim() > 0


_SMOOTH = {
    "atan": torch.atan,
    "asinh": torch.asinh,
    "cos": torch.cos,
    "elu": F.elu,
    "erf": torch.erf,
    "exp": lambda x: torch.exp(x.clamp(max=4)),
    "expm1": lambda x: torch.expm1(x.clamp(max=4)),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "log1p": lambda x: torch.log1p(x.abs()),
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "reciprocal": lambda x: torch.reciprocal(x.abs() + 1),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "sqrt": lambda x: torch.sqrt(x.abs() + 1),
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
}
_EXACT_UNARY = {
    "abs": torch.abs,
    "clone": torch.clone,
    "neg": torch.neg,
    "relu": torch.relu,
    "relu6": F.relu6,
    "square": torch.square,
    "positive": torch.positive,
    "clamp": lambda x: x.clamp(-2, 3),
    "clamp_min": lambda x: x.clamp(min=1),
    "hardtanh": F.hardtanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.5),
    "nan_to_num": lambda x: x.nan_to_num(1.0, 2.0, -2.0),
}
_JUMPS_UNARY = {
    "ceil": torch.ceil,
    "floor": torch.floor,
    "frac": torch.frac,
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "logical_not": torch.logical_not,
    "round": torch.round,
    "sgn": torch.sgn,
    "sign": torch.sign,
    "signbit": lambda x: torch.signbit(x + 0.25 if x.is_floating_point() else x),
    "trunc": torch.trunc,
    "heaviside": lambda x: torch.heaviside(x, torch.ones((), dtype=x.dtype)),
}


@makes
def smooth(choose: Choices) -> Step | None:
    """Apply a smooth function to any dtype; torch converts integers to floats."""
    name = choose.one_of(list(_SMOOTH))
    place = choose.value()
    return None if place is None else Step(name, _SMOOTH[name], (place,))


@makes
def exact_unary(choose: Choices) -> Step | None:
    name = choose.one_of(list(_EXACT_UNARY))
    place = choose.value(is_number)
    return None if place is None else Step(name, _EXACT_UNARY[name], (place,), exact=True)


@makes
def jumping_unary(choose: Choices) -> Step | None:
    name = choose.one_of(list(_JUMPS_UNARY))
    place = choose.value(is_exact)
    return None if place is None else Step(name, _JUMPS_UNARY[name], (place,), jumps=True)


_EXACT_BINARY = {
    "add": torch.add,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub": torch.sub,
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=3),
    "rsub": torch.rsub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
}
_SMOOTH_BINARY = {
    "div": lambda a, b: a / (b.abs() + 1),
    "atan2": lambda a, b: torch.atan2(a, b.abs() + 1),
    "hypot": lambda a, b: torch.hypot(a + 0.5, b + 0.5),
    "logaddexp": lambda a, b: torch.logaddexp(a + 0.5, b + 0.5),
    "lerp": lambda a, b: torch.lerp(a, b.to(a.dtype), 0.25),
    "pow": lambda a, b: torch.pow(a.abs() + 1, b.clamp(-2, 2)),
}
_JUMPS_BINARY = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "remainder": lambda a, b: torch.remainder(a, b.abs() + 1),
    "remainder_negative": lambda a, b: torch.remainder(a, -(b.abs() + 1)),
    "fmod": lambda a, b: torch.fmod(a, b.abs() + 1),
    "floor_divide": lambda a, b: torch.floor_divide(a, b.abs() + 1),
    "div_trunc": lambda a, b: torch.div(a, -(b.abs() + 1), rounding_mode="trunc"),
    "div_floor": lambda a, b: torch.div(a, b.abs() + 1, rounding_mode="floor"),
    "copysign": lambda a, b: torch.copysign(a, b + 0.25),
    "isclose": lambda a, b: torch.isclose(a, b.to(a.dtype)),
}


def _partner(choose: Choices, place: int, fits: Callable[[Value], bool]) -> int | None:
    """Return another value that broadcasts with this one."""
    shape = choose.eager(place).shape

    def broadcasts(operand: Value) -> bool:
        if not fits(operand):
            return False
        pairs = zip(reversed(shape), reversed(operand.eager.shape), strict=False)
        return all(a == b or 1 in (a, b) for a, b in pairs)

    return choose.value(broadcasts)


def _pair(choose: Choices, table: dict[str, Callable[..., torch.Tensor]], **facts: bool):
    name = choose.one_of(list(table))
    fits = is_exact if facts.get("jumps") else (lambda _: True)
    place = choose.value(fits)
    other = None if place is None else _partner(choose, place, fits)
    return None if other is None else Step(name, table[name], (place, other), **facts)


@makes
def exact_binary(choose: Choices) -> Step | None:
    """Combine any two dtypes; torch promotes."""
    return _pair(choose, _EXACT_BINARY, exact=True)


@makes
def smooth_binary(choose: Choices) -> Step | None:
    return _pair(choose, _SMOOTH_BINARY)


@makes
def jumping_binary(choose: Choices) -> Step | None:
    return _pair(choose, _JUMPS_BINARY, jumps=True)


@makes
def with_scalar(choose: Choices) -> Step | None:
    """Combine with a Python number, a weak type: a float promotes an int tensor, not vice versa."""
    table = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "rsub": lambda a, b: b - a,
        "clamp": lambda a, b: a.clamp(b, b + 2),
        "maximum": lambda a, b: torch.clamp_min(a, b),
    }
    name, scalar = choose.one_of(list(table)), choose.scalar()
    place = choose.value(is_number)
    if place is None:
        return None
    return Step(f"{name} {scalar}", lambda x: table[name](x, scalar), (place,), exact=True)


@makes
def jumping_with_scalar(choose: Choices) -> Step | None:
    table = {
        "lt": operator.lt,
        "ge": operator.ge,
        "eq": operator.eq,
        "remainder": operator.mod,
        "floordiv": operator.floordiv,
        "fmod": torch.fmod,
        "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    }
    name, scalar = choose.one_of(list(table)), choose.scalar()
    place = choose.value(lambda h: h.exact and is_number(h))
    if place is None or not scalar:
        return None
    return Step(f"{name} {scalar}", lambda x: table[name](x, scalar), (place,), jumps=True)


@makes
def bits(choose: Choices) -> Step | None:
    table = {
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "not": lambda a, _: ~a,
        "left": lambda a, b: a << (b.abs() % 4),
        "right": lambda a, b: a >> (b.abs() % 4),
    }
    name = choose.one_of(list(table))
    # Export rejects shifts of booleans, which eager accepts.
    fits = is_integer if name in ("left", "right") else lambda h: not is_float(h)
    place = choose.value(fits)
    other = None if place is None else _partner(choose, place, fits)
    return None if other is None else Step(name, table[name], (place, other), exact=True)


@makes
def where(choose: Choices) -> Step | None:
    condition = choose.value(is_bool)
    if condition is None:
        return None
    a = _partner(choose, condition, lambda _: True)
    b = None if a is None else _partner(choose, a, lambda _: True)
    if b is None:
        return None
    form, scalar = choose.number(0, 2), choose.scalar()
    forms = {
        0: ("where", torch.where, (condition, a, b)),
        1: (f"where {scalar}", lambda c, x: torch.where(c, x, scalar), (condition, a)),
        2: (f"masked_fill {scalar}", lambda c, x: x.masked_fill(c, scalar), (condition, a)),
    }
    name, fn, operands = forms[form]
    return Step(name, fn, operands, exact=True)


@makes
def cast(choose: Choices) -> Step | None:
    """Cast; in the float64 reference a cast between floats does nothing."""
    place, dtype = choose.value(), choose.one_of(DTYPES)
    if place is None:
        return None
    x = choose.eager(place)
    inexact = x.is_floating_point() and not dtype.is_floating_point
    if inexact and dtype is not torch.bool and not x.isfinite().all():
        return None  # the integer value of an infinity depends on the machine

    def to(x: torch.Tensor) -> torch.Tensor:
        wide = x.dtype is torch.float64 and dtype.is_floating_point
        return x if wide else x.to(dtype)

    return Step(f"to {dtype}", to, (place,), exact=not inexact, jumps=inexact)
