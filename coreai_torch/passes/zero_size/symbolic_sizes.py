"""Compute symbolic sizes of the exported graph from values of the program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]  # ships no types
import torch
import torch.fx as fx

from ...ir import shapes
from ...ir.dialect import Dim, Value, size
from ...torch_compat import sympy_functions
from ..pass_graph import Values

_functions = sympy_functions()


def extents(shape: Sequence[Any], node: fx.Node, values: Values) -> list[Dim] | None:
    """Return the sizes as numbers or values; None if one cannot be computed here."""
    found = [_extent(s, node, values) for s in shape]
    return None if any(s is None for s in found) else [s for s in found if s is not None]


def _extent(extent: Any, node: fx.Node, values: Values) -> Dim | None:
    if not isinstance(extent, torch.SymInt):
        return int(extent)
    return _computed(extent.node.expr, node, values)


def _computed(expression: sympy.Expr, node: fx.Node, values: Values) -> Dim | None:
    """Return the value of an expression such as `s0 // 2 + 1`, else None."""
    if expression.is_Integer:
        return int(expression)
    found = next(_values_of(expression, node, values), None)
    if found is not None:
        return found
    combine = _COMBINED.get(type(expression))
    if combine is None or (expression.is_Pow and not _is_count(expression.exp)):
        return None
    parts = [_computed(part, node, values) for part in expression.args]
    known = [part for part in parts if part is not None]
    return functools.reduce(combine, known) if len(known) == len(parts) else None


def _values_of(expression: sympy.Expr, node: fx.Node, values: Values) -> Iterator[Dim]:
    """Yield values that equal this size: symbolic numbers, and sizes of tensors."""
    for source in [*node.all_input_nodes, *values.nodes]:
        value, val = values.nodes.get(source), source.meta.get("val")
        if not isinstance(value, Value):
            continue
        if isinstance(val, torch.SymInt) and val.node.expr == expression:
            yield value
        for axis, other in enumerate(val.shape if isinstance(val, torch.Tensor) else ()):
            if isinstance(other, torch.SymInt) and other.node.expr == expression:
                yield size(value, axis)


def _is_count(exponent: sympy.Expr) -> bool:
    return bool(exponent.is_Integer and exponent.is_positive)


def _power(base: Dim, exponent: Any) -> Dim:
    return functools.reduce(shapes.mul, [base] * exponent)


def _remainder(a: Dim, b: Dim) -> Dim:
    return shapes.sub(a, shapes.mul(shapes.floordiv(a, b), b))


_COMBINED: dict[Any, Callable[[Dim, Dim], Dim]] = {
    sympy.Add: shapes.add,
    sympy.Mul: shapes.mul,
    sympy.Pow: _power,
    _functions.FloorDiv: shapes.floordiv,
    _functions.Mod: _remainder,
    _functions.PythonMod: _remainder,
    _functions.Max: shapes.maximum,
    _functions.Min: shapes.minimum,
}
