"""The torch implementation of each op of the dialect, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_type_hints

import torch

from ..asset.reading import Op

Tensor: TypeAlias = torch.Tensor
Result: TypeAlias = Any  # one tensor, or a sequence with one per result

# How a parameter takes its operand: a vector as a list, a scalar as a number. Constant operands are
# converted once, when the program is compiled.
Ints = Annotated[list[int], "list"]
Floats = Annotated[list[float], "list"]
Int = Annotated[int, "item"]
Flag = Annotated[bool, "item"]


@dataclass(frozen=True)
class Parameter:
    """How one operand is passed: as a `tensor`, a `list` or an `item`."""

    how: str
    variadic: bool


@dataclass(frozen=True)
class Implementation:
    """A function of an op's operands, and how it takes each."""

    function: Callable[..., Result]
    parameters: tuple[Parameter, ...]


Planner: TypeAlias = Callable[[Op], Callable[..., Result]]

_PLANNERS: dict[str, Planner] = {}


def full_name(name: str) -> str:
    """Return `coreai.add` for `add`; names of other dialects are already full."""
    return name if name.startswith("coreaix.") else f"coreai.{name}"


def plans(*names: str) -> Callable[[Planner], Planner]:
    """Register a function that takes the op and returns the function of its operands."""

    def register(planner: Planner) -> Planner:
        for name in names:
            _PLANNERS[full_name(name)] = planner
        return planner

    return register


def implements(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function of the operands that works for all their types."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        plans(*names)(lambda op: function)
        return function

    return register


def known() -> frozenset[str]:
    """Return the names of the registered ops; structural ops are not among them."""
    return frozenset(_PLANNERS)


def is_known(name: str) -> bool:
    """Return whether an op is registered, by its full name."""
    return name in _PLANNERS


def implementation(op: Op) -> Implementation:
    """Return the implementation of an op."""
    function = _PLANNERS[op.name](op)
    return Implementation(function, _parameters(function))


def _parameters(function: Callable[..., Result]) -> tuple[Parameter, ...]:
    try:
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, AttributeError):  # a builtin of torch, which takes tensors
        return (Parameter("tensor", variadic=True),)
    return tuple(
        Parameter(
            getattr(hints.get(p.name), "__metadata__", ("tensor",))[0],
            p.kind is inspect.Parameter.VAR_POSITIONAL,
        )
        for p in signature
    )
