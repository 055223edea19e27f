"""The names and ranges of the dynamic sizes of inputs, outputs and states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..torch_compat import size_names
from .io_plan import IOPlan

_MOST = 2**31 - 1  # larger bounds mean that there is none


def size_ranges(
    program: torch.export.ExportedProgram, plan: IOPlan
) -> dict[str, dict[str, list[Any]]]:
    """Return `{"x": {"0": ["batch", 1, 8, 2]}}`: name, bounds and example by port and axis.

    The upper bound is None if there is none. Sizes that depend on data are left out.
    """
    found = {name: _port(node, program) for name, node in _ports(plan)}
    return {name: axes for name, axes in found.items() if axes}


def _ports(plan: IOPlan) -> Iterator[tuple[str, fx.Node]]:
    yield from ((port.name, port.node) for port in plan.inputs)
    yield from ((state.name, state.node) for state in plan.states)
    for output in plan.outputs:
        if isinstance(output.value, fx.Node):
            yield output.name, output.value


def _port(node: fx.Node, program: torch.export.ExportedProgram) -> dict[str, list[Any]]:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return {}
    return {
        str(axis): _size(size, program)
        for axis, size in enumerate(value.shape)
        if isinstance(size, torch.SymInt)
        and size.node.expr.free_symbols  # none in a symbolic size that turned out to be static
        and not free_unbacked_symbols(size)
    }


def _size(size: torch.SymInt, program: torch.export.ExportedProgram) -> list[Any]:
    expression, environment = size.node.expr, size.node.shape_env
    names = size_names(environment)
    text = str(expression)
    for symbol in sorted(expression.free_symbols, key=lambda s: -len(str(s))):
        text = text.replace(str(symbol), names.get(symbol, str(symbol)))
    bounds = _bounds(expression, environment, program.range_constraints)
    return [text, *bounds, size.node.hint if size.node.has_hint() else None]


def _bounds(expression: Any, environment: Any, given: Mapping[Any, Any]) -> list[int | None]:
    """Return the least and the greatest value; sizes are monotone in one symbol."""
    (symbol, *others) = expression.free_symbols
    bounds = given.get(symbol) or environment.bound_sympy(symbol)
    ends = [_number(bounds.lower), _number(bounds.upper)]
    if expression == symbol:
        return ends
    if others or None in ends:
        bounds = environment.bound_sympy(expression)
        return [_number(bounds.lower), _number(bounds.upper)]
    return [*sorted(int(expression.subs(symbol, end)) for end in ends)]


def _number(bound: Any) -> int | None:
    if not getattr(bound, "is_Integer", isinstance(bound, int)):  # infinite
        return None
    return int(bound) if abs(int(bound)) < _MOST else None
