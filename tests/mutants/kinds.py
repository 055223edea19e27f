"""The kinds of sabotage: each changes the result of a lowering, or the arguments it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from coreai_torch.ir import dialect
from coreai_torch.ir.dialect import Value
from coreai_torch.lowering.binding import Call


class NotApplicableError(Exception):
    """This kind of sabotage does not fit the op: it has no axis, no float result, ..."""


@dataclass(frozen=True)
class Kind:
    """A kind of sabotage.

    `result` maps the first result of an op, and the call, to a wrong one. `arguments` maps the
    bound arguments of a lowering to wrong ones.
    """

    name: str
    description: str
    result: Callable[[Value, Call], Value] | None = None
    arguments: Callable[[dict[str, Any], Any], dict[str, Any]] | None = None


def _numbers(x: Value) -> Value:
    if dialect.is_bool(x):
        raise NotApplicableError("the result is boolean")
    return x


def _floats(x: Value) -> Value:
    if not (dialect.is_float(x) or dialect.is_complex(x)):
        raise NotApplicableError("the result is not floating point")
    return x


def _static(x: Value) -> list[int]:
    sizes = [int(s) for s in x.type.shape]
    if any(s < 1 for s in sizes):
        raise NotApplicableError("the result has dynamic or zero sizes")
    return sizes


def _zeros(x: Value, call: Call) -> Value:
    return dialect.zeros(x, _static(x))


def _identity(x: Value, call: Call) -> Value:
    for node in call.node.all_input_nodes:
        operand = call.scope.values_of(node)
        if isinstance(operand, Value) and operand.type == x.type:
            return operand
    raise NotApplicableError("no operand has the type of the result")


def _negated(x: Value, call: Call) -> Value:
    if dialect.is_bool(x):
        return dialect.logical_not(x)
    if dialect.is_integer(x) and not dialect.dtype(x).is_signed:
        raise NotApplicableError("the result is unsigned")
    return dialect.neg(x)


def _shifted(x: Value, call: Call) -> Value:
    sizes = _static(x)
    axis = next((i for i in reversed(range(len(sizes))) if sizes[i] > 1), None)
    if axis is None:
        raise NotApplicableError("the result has one element")
    first = dialect.slice_axis(x, axis, 0, 1)
    return dialect.concat(axis, [dialect.slice_axis(x, axis, 1, sizes[axis]), first])


def _scaled(x: Value, call: Call) -> Value:
    return dialect.mul(_floats(x), dialect.like(x, 1.001))


def _one_element(x: Value, call: Call) -> Value:
    sizes = _static(x)
    starts, ends, strides = [s - 1 for s in sizes], sizes, [1] * len(sizes)
    piece = dialect.slice_(x, starts, ends) if sizes else x
    wrong = (
        dialect.logical_not(piece)
        if dialect.is_bool(x)
        else dialect.add(piece, dialect.like(piece, 1))
    )
    return dialect.slice_update(x, wrong, starts, ends, strides) if sizes else wrong


def _half_rounded(x: Value, call: Call) -> Value:
    if dialect.dtype(x) != torch.float32:
        raise NotApplicableError("the result is not float32")
    return dialect.raw_cast(dialect.raw_cast(x, torch.float16), torch.float32)


_AXES = ("dim", "dims", "axis", "axes")


def _other_axis(bound: dict[str, Any], call: Any) -> dict[str, Any]:
    rank = call.rank
    for name in _AXES:
        given = bound.get(name)
        if isinstance(given, bool) or rank < 2:
            continue
        if isinstance(given, int):
            return {**bound, name: type(given)((given + 1) % rank)}
        if isinstance(given, list | tuple) and given and len(given) < rank:
            return {**bound, name: tuple((a + 1) % rank for a in given)}
    raise NotApplicableError("the lowering takes no axis")


def _swapped_axes(x: Value, call: Call) -> Value:
    sizes = _static(x)
    for a in range(len(sizes)):
        for b in range(a + 1, len(sizes)):
            if sizes[a] == sizes[b] > 1:
                order = list(range(len(sizes)))
                order[a], order[b] = b, a
                return dialect.transpose(x, order)
    raise NotApplicableError("no two axes of the result have one size")


def _dropped(bound: dict[str, Any], defaults: Any) -> dict[str, Any]:
    for name, default in defaults.items():
        given = bound.get(name)
        if isinstance(given, Value) and default is None:
            return {**bound, name: None}
        is_plain = isinstance(given, bool | int | float | str)
        if is_plain and default is not None and given != default:
            return {**bound, name: default}
        if isinstance(given, list | tuple) and isinstance(default, list) and list(given) != default:
            return {**bound, name: default}
    raise NotApplicableError("no optional argument differs from its default")


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("zeros", "the result is zero", _zeros),
        Kind("identity", "the result is an operand", _identity),
        Kind("sign", "the result is negated", _negated),
        Kind("shift", "elements are off by one index", _shifted),
        Kind("axis", "another axis is taken", _swapped_axes, _other_axis),
        Kind("dropped", "an optional argument is ignored", None, _dropped),
        Kind("relative", "the result is 0.1 % too large", _scaled),
        Kind("element", "the last element is one too large", _one_element),
        Kind("half", "a float32 result is rounded to float16", _half_rounded),
    )
}
