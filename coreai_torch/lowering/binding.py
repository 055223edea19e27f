"""Bind an FX node's arguments to a lowering's parameters through the op's schema.

A parameter's annotation is a contract: `Value` is a tensor (a number becomes a constant),
`Sequence[int]`, `int`, `bool`, `float` and `str` promise static values, `Shape`, `Dim` and
`Number` admit run-time ones, `Axis` and `Axes` are normalized to count from the front, and
`ConstantOrValue` is a torch tensor if the argument is a constant, for which no op is emitted. Any
of them may be `| None`. A `**rest` takes all other arguments. Only
`Value` takes part in dtype promotion. Other annotations (torch dtypes, nested lists) get the
argument with its nodes replaced by what they were lowered to.
"""

from __future__ import annotations

import inspect
import types as python_types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

import torch
import torch.fx as fx

from ..errors import (
    REGISTER_HINT,
    ArgumentTypeError,
    UnsupportedArgumentError,
    describe,
    target_name,
)
from ..ir import types
from ..ir.dialect import Dim, Value, constant
from ..torch_compat import OpOverload, schema_of
from .scope import Scope

Number: TypeAlias = bool | int | float | Value
Axis = NewType("Axis", int)
Axes = NewType("Axes", tuple[int, ...])
Shape = NewType("Shape", tuple[Any, ...])
ConstantOrValue = NewType("ConstantOrValue", object)


@dataclass(frozen=True)
class Call:
    """A node that is being lowered, and the values of its graph."""

    node: fx.Node
    scope: Scope

    @property
    def rank(self) -> int:
        """The rank of the first tensor argument, which `dim` refers to."""
        for argument in self.node.args:
            first = argument[0] if isinstance(argument, list | tuple) and argument else argument
            if isinstance(first, fx.Node) and isinstance(first.meta.get("val"), torch.Tensor):
                return int(first.meta["val"].dim())
        return 0

    def refuse(self, problem: str, hint: str = REGISTER_HINT) -> UnsupportedArgumentError:
        """Return the error for an argument that this lowering cannot convert correctly."""
        name = target_name(self.node.target)
        return UnsupportedArgumentError(describe(self.node, f"{name}: {problem}", hint))


Convert: TypeAlias = Callable[[Call, str, Any], Any]


def _axis(call: Call, name: str, given: Any) -> Axis:
    dim, rank = _static(call, name, given), max(call.rank, 1)
    if not -rank <= dim < rank:
        raise call.refuse(f"{name}={dim} is out of range for a tensor of rank {call.rank}")
    return Axis(dim % rank)


def _axes(call: Call, name: str, given: Any) -> Axes:
    dims = _static(call, name, given)
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return Axes(tuple(range(call.rank)))  # torch reduces all axes for both
    listed = [dims] if isinstance(dims, int) else dims
    axes = tuple(_axis(call, name, d) for d in listed)
    return Axes(axes if call.rank else ())


def _static(call: Call, name: str, given: Any) -> Any:
    stored = call.scope.resolve(given)
    parts = stored if isinstance(stored, list | tuple) else [stored]
    if any(isinstance(part, Value | torch.Tensor) for part in parts):
        raise call.refuse(
            f"{name} must be known when converting; here it is computed at run time",
            f"change the model so that {name} is a constant",
        )
    return stored


def _value(call: Call, name: str, given: Any) -> Any:
    return call.scope.values_of(given)


def _constant_or_value(call: Call, name: str, given: Any) -> Any:
    return call.scope.resolve(given)


def _shape(call: Call, name: str, given: Any) -> Shape:
    return Shape(tuple(call.scope.values_of(given)))


def _values(call: Call, name: str, given: Any) -> Any:
    return [as_value(call.scope.values_of(g)) for g in given]


def as_value(stored: Any) -> Any:
    """Return a number as a constant of its natural dtype, and anything else unchanged."""
    if isinstance(stored, bool | int | float | complex):
        return constant(stored, types.scalar_dtype(stored))
    return stored


_BY_ANNOTATION: dict[Any, Convert] = {
    Axis: _axis,
    Axes: _axes,
    Shape: _shape,
    ConstantOrValue: _constant_or_value,
    Value: _value,
    Sequence[Value]: _values,
    Sequence[Value | None]: _values,
    bool: _static,
    int: _static,
    float: _static,
    str: _static,
    Sequence[int]: _static,
    Sequence[float]: _static,
    Sequence[bool]: _static,
}


def _strip_none(hint: Any) -> Any:
    """Return `X` for `X | None`."""
    if get_origin(hint) not in (Union, python_types.UnionType):
        return hint
    rest = [a for a in get_args(hint) if a is not type(None)]
    return rest[0] if len(rest) == 1 else hint


def converter_for(hint: Any) -> Convert:
    """Return the function that prepares an argument with this annotation."""
    plain = _strip_none(hint)
    convert = _BY_ANNOTATION.get(plain, _value)
    if plain is hint or plain is Axes:
        return convert
    return lambda call, name, given: None if given is None else convert(call, name, given)


@dataclass(frozen=True)
class Param:
    """One argument of the schema, and the parameter of the lowering that receives it."""

    name: str
    default: Any
    into: str | None  # the parameter of the lowering; None if it does not take the argument
    ignored: bool
    convert: Convert
    promotes: bool


class Signature:
    """The parameters of a lowering, checked against the schema of the op at first use."""

    def __init__(
        self, target: OpOverload, fn: Callable[..., Any], ignore: Sequence[str] = ()
    ) -> None:
        schema, hints = schema_of(target), get_type_hints(fn)
        parameters = list(inspect.signature(fn).parameters.values())[1:]  # without the context
        rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        taken = [p.name for p in parameters if p.name != rest]
        self.params: list[Param] = []
        for argument in schema.arguments:
            into = "x" if argument.name in ("self", "input") else argument.name
            ignored = argument.name in ignore
            is_taken = into in taken or (rest is not None and not ignored)
            if not is_taken and not ignored and not argument.has_default_value():
                raise ArgumentTypeError(
                    f"{fn.__name__} must take or ignore {argument.name!r} of {schema}"
                )
            hint = hints.get(into if into in taken else rest or into)
            self.params.append(
                Param(
                    name=argument.name,
                    default=argument.default_value if argument.has_default_value() else None,
                    into=into if is_taken else None,
                    ignored=ignored,
                    convert=converter_for(hint),
                    promotes=_strip_none(hint) is Value,
                )
            )
        if stray := set(taken) - {p.into for p in self.params}:
            raise ArgumentTypeError(
                f"{fn.__name__} takes {sorted(stray)}, which are not in {schema}"
            )
        if unknown := set(ignore) - {p.name for p in self.params}:
            raise ArgumentTypeError(
                f"{fn.__name__} ignores {sorted(unknown)}, which are not in {schema}"
            )

    def given(self, node: fx.Node) -> list[Any]:
        """Return the arguments of a node in the order of the schema, with defaults."""
        args, kwargs = node.args, node.kwargs
        return [
            args[i] if i < len(args) else kwargs.get(p.name, p.default)
            for i, p in enumerate(self.params)
        ]

    def bind(self, call: Call) -> dict[str, Any]:
        """Return the arguments by name; raise if the lowering does not support one."""
        bound = {}
        for param, given in zip(self.params, self.given(call.node), strict=True):
            if param.into is not None:
                bound[param.into] = param.convert(call, param.name, given)
            elif not param.ignored and call.scope.resolve(given) != param.default:
                raise call.refuse(
                    f"known only with {param.name}={param.default!r}, here it is {given!r}"
                )
        return bound


__all__ = [
    "Axes",
    "Axis",
    "Call",
    "ConstantOrValue",
    "Dim",
    "Number",
    "Param",
    "Shape",
    "Signature",
]
