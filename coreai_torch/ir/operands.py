"""Check the arguments of the dialect vocabulary; numbers become constants."""

from __future__ import annotations

import cmath
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeAlias, TypeGuard, TypeVar

import torch
from coreai._compiler.ir import RankedTensorType, Value

from ..errors import ArgumentTypeError
from . import types
from .build import Build

# What torch makes a rank-0 tensor of.
Number: TypeAlias = Any

# A tensor of the graph, or a number that becomes a constant of the element type of the others.
Operand: TypeAlias = "Value | bool | int | float | complex"

Rule: TypeAlias = Callable[[object], bool]

Unary: TypeAlias = Callable[[Value], Value]
Binary: TypeAlias = Callable[[Value, Value], Value]

P = ParamSpec("P")
R = TypeVar("R")


def vocabulary(function: Callable[P, R]) -> Callable[P, R]:
    """Check arguments by their annotations, and convert a number passed as an `Operand`.

    The bindings fail on a wrong argument with "'float' object has no attribute 'owner'", and read
    an axis of 0.5 as 0.
    """
    signature = inspect.signature(function)
    kinds = [str(p.annotation) for p in signature.parameters.values()]
    rules = [_RULES.get(kind, _anything) for kind in kinds]
    by_name = dict(zip(signature.parameters, rules, strict=True))
    only_values = set(kinds) <= {"Value", "Operand"}

    def convert(args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        bound = signature.bind(*args, **kwargs)
        _convert(function.__name__, signature, bound.arguments)
        return function(*bound.args, **bound.kwargs)

    @wraps(function)
    def checked_values(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            return convert(args, kwargs)
        for one in args:  # a loop is the fastest: a conversion comes here some times per node
            if not isinstance(one, Value):
                return convert(args, kwargs)
        return function(*args, **kwargs)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for rule, one in zip(rules, args, strict=False):
            if not rule(one):
                return convert(args, kwargs)
        if kwargs and not _follow(by_name, kwargs):
            return convert(args, kwargs)
        return function(*args, **kwargs)

    return checked_values if only_values else checked


def _follow(rules: Mapping[str, Rule], given: Mapping[str, object]) -> bool:
    """Return whether arguments by name follow their rules; the call rejects an unknown name."""
    return all(rules.get(name, _anything)(one) for name, one in given.items())


def _anything(_: object) -> bool:
    return True


def _is_value(given: object) -> bool:
    return isinstance(given, Value)


def _is_integer(given: object) -> bool:
    return type(given) is int or (hasattr(given, "__index__") and not isinstance(given, Value))


def _is_real(given: object) -> bool:
    return isinstance(given, int | float) or _is_integer(given)


def _is_number(given: object) -> bool:
    """Return whether a constant can be made of an object; torch converts NumPy's numbers too."""
    if type(given) is float or type(given) is int:
        return True
    return not isinstance(given, str | bytes | Sequence | None) and not getattr(given, "ndim", 0)


def _is_dim(given: object) -> bool:
    return type(given) is int or isinstance(given, Value) or _is_integer(given)


def _is_list(given: object) -> TypeGuard[Sequence[object]]:
    # A check against the abstract class takes five times as long as these two.
    return type(given) is list or type(given) is tuple or isinstance(given, Sequence)


def _or_none(rule: Rule) -> Rule:
    return lambda given: given is None or rule(given)


def _each(rule: Rule) -> Rule:
    return lambda given: _is_list(given) and all(map(rule, given))


# What an argument must be, by its annotation in the source.
_RULES: dict[str, Rule] = {
    "Value": _is_value,
    "Operand": _is_value,
    "Operand | None": _or_none(_is_value),
    "Sequence[Value]": _each(_is_value),
    "Number": _is_number,
    "Number | Sequence[Number]": lambda given: _is_number(given) or _each(_is_number)(given),
    "Dim": _is_dim,
    "Sequence[Dim]": _each(_is_dim),
    "Sequence[Dim] | None": _or_none(_each(_is_dim)),
    "Counts": _each(_each(_is_dim)),
    "int": _is_integer,
    "Sequence[int]": _each(_is_integer),
    "int | Sequence[int]": lambda given: _is_integer(given) or _each(_is_integer)(given),
    "Sequence[float]": _each(_is_real),
    "str": lambda given: isinstance(given, str),
    "torch.dtype": lambda given: isinstance(given, torch.dtype),
    "torch.Tensor": lambda given: isinstance(given, torch.Tensor),
    "RankedTensorType": lambda given: isinstance(given, RankedTensorType),
}

# The same, for messages.
_WANTED = {
    "Value": "a tensor of the graph (Value)",
    "Operand": "a tensor of the graph (Value) or a number",
    "Operand | None": "a tensor of the graph (Value) or a number",
    "Sequence[Value]": "a list of tensors of the graph (Value)",
    "Number": "a number or a Value",
    "Number | Sequence[Number]": "a number or a flat list of numbers",
    "Dim": "an integer or a rank-0 Value",
    "Sequence[Dim]": "a list of integers or rank-0 Values",
    "Sequence[Dim] | None": "a list of integers or rank-0 Values",
    "Counts": "a list of pairs of integers or rank-0 Values",
    "int": "an integer that is known at conversion",
    "Sequence[int]": "a list of integers that are known at conversion",
    "int | Sequence[int]": "an integer, or a list of integers, known at conversion",
    "Sequence[float]": "a list of numbers",
    "str": "a string",
    "torch.dtype": "a torch.dtype",
    "torch.Tensor": "a torch.Tensor",
    "RankedTensorType": "a RankedTensorType",
}


def _convert(name: str, signature: inspect.Signature, given: dict[str, Any]) -> None:
    """Replace the numbers in `given` by constants; reject other wrong arguments."""
    kinds = {p.name: str(p.annotation) for p in signature.parameters.values()}
    operands = [given[p] for p in given if kinds[p].startswith("Operand")]
    like = next((one for one in (*operands, given.get("x")) if isinstance(one, Value)), None)
    for parameter, one in given.items():
        kind = kinds[parameter]
        if _RULES.get(kind, _anything)(one):
            continue
        number = _as_number(one) if kind.startswith("Operand") else None
        if number is None:
            _refuse(name, parameter, one, _WANTED[kind], _hint(one, kind))
        if like is None:
            _refuse(name, parameter, one, "a tensor, as at least one operand must be", CONSTANT)
        given[parameter] = constant_like(name, parameter, number, like)


CONSTANT = "pass dialect.constant(number, dtype)"


def _as_number(given: Any) -> bool | int | float | complex | None:
    """Return a Python number, also of a NumPy scalar; None for other objects."""
    if isinstance(given, bool | int | float | complex):
        return given
    if type(given).__module__ == "numpy" and getattr(given, "ndim", None) == 0:
        return _as_number(given.item())
    return None


def _hint(given: object, kind: str) -> str:
    if isinstance(given, torch.Tensor):
        return "pass dialect.tensor_constant(tensor)"
    if kind in ("Value", "Operand", "Operand | None", "Sequence[Value]"):
        return CONSTANT if _as_number(given) is not None else "pass the result of another function"
    return f"pass {_WANTED[kind]}"


def _refuse(name: str, parameter: str, given: object, wanted: str, hint: str) -> NoReturn:
    raise ArgumentTypeError(
        f"dialect.{name}: {parameter} is {_describe(given)}, not {wanted}\n  try   {hint}"
    )


def _describe(given: object) -> str:
    if isinstance(given, Value):
        return "a Value"
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(_describe, given))}]"
    shown = repr(given)
    return f"{shown} ({type(given).__name__})" if len(shown) < 80 else type(given).__name__


def constant_like(name: str, parameter: str, number: Any, like: Value) -> Value:
    """Return the number as a constant of the element type of `like`, if that type has it."""
    dtype = types.dtype_of(like.type)
    if (reason := _misfit(number, dtype)) is not None:
        word = str(dtype).removeprefix("torch.")
        raise ArgumentTypeError(
            f"dialect.{name}: {parameter} is {number!r}, but the other operand has the element "
            f"type {word}, which {reason}\n  try   cast the other operand first, as in "
            "dialect.cast(x, torch.float32), or pass another number"
        )
    return Build.current().number(number, dtype)


def _misfit(number: Any, dtype: torch.dtype) -> str | None:
    """Return why a number is not of the dtype; None if it is, up to rounding of floats."""
    if dtype.is_complex:
        return None
    if isinstance(number, complex):
        return "has no imaginary part"
    if dtype == torch.bool:
        return None if number in (0, 1) else "has only False and True"
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        if isinstance(number, float):
            return "has only integers"
        return None if limits.min <= number <= limits.max else "is too narrow"
    fits = not cmath.isfinite(number) or abs(number) <= torch.finfo(dtype).max
    return None if fits else "is too narrow"


def check_choice(name: str, parameter: str, given: str, choices: Sequence[str]) -> None:
    """Reject a word that the op does not know."""
    if given not in choices:
        listed = ", ".join(map(repr, choices))
        raise ArgumentTypeError(
            f"dialect.{name}: unknown {parameter} {given!r}\n  try   pass one of {listed}"
        )
