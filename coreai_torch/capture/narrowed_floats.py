"""Warn about float64 arithmetic whose results lose digits in float32."""

from __future__ import annotations

import math
import operator
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx

from ..errors import NarrowingWarning, place, source_line, target_name
from ..fx.programs import stored_tensors
from ..numerics.rounding import Kind, kind_of, overload
from ..torch_compat import OpOverload, pytree
from .validate import calls
from .value_ranges import Ranges

_WIDE = (torch.float64, torch.complex128)
_HELD = 2**24  # integers up to here are exact in float32
_SHORT = 16  # elements of a tensor that is never a weight
_FOLDED_BYTES = 1 << 20  # of a result that depends on a weight, and is evaluated all the same
_MOST_BYTES = 1 << 26  # of a table that the graph generates, to spare the memory
_HINT = (
    "compute relative to an offset, such as a start time; reduce a phase modulo 1 before it grows; "
    "or do this part on the host and pass its result. Ignore it if 7 digits are enough"
)


def warn(program: torch.export.ExportedProgram) -> None:
    """Issue one warning that names every operation whose result narrowing may change."""
    losing = losing_ops(program)
    if not losing:
        return
    places = Counter((target_name(n.target), source_line(n)) for n in losing)
    first = {(target_name(n.target), source_line(n)): n for n in reversed(losing)}
    lines = [
        f"  at    {place(first[key])}" + (f", {count} times" if count > 1 else "")
        for key, count in places.items()
    ]
    ops = "1 operation computes" if len(losing) == 1 else f"{len(losing)} operations compute"
    headline = f"{ops} in float64; the program computes in float32, which has 7 digits"
    message = "\n".join([headline, *lines, f"  try   {_HINT}"])
    warnings.warn(message, NarrowingWarning, stacklevel=3)


def losing_ops(program: torch.export.ExportedProgram) -> list[fx.Node]:
    """Return the operations whose result narrowing may change beyond rounding it once."""
    every = list(calls(program.graph_module))
    if not any(_is_wide(n) for node in every for n in (node, *node.all_input_nodes)):
        return []
    found = _Narrowed(stored_tensors(program, states=False))
    return [node for node in every if found.loses(node)]


class _Narrowed:
    """Tracks which float64 values float32 holds exactly."""

    def __init__(self, known: Mapping[str, torch.Tensor]) -> None:
        self._constants, self._ranges = known, Ranges(known)
        self._evaluated: dict[fx.Node, Any] = {}
        self._weights: set[fx.Node] = set()
        self._held: dict[fx.Node, bool] = {}

    def loses(self, node: fx.Node) -> bool:
        """Return whether narrowing may change the result of a call beyond rounding it once."""
        self._ranges.infer(node)
        if self._evaluate(node):
            return False
        kind = _kind(node)
        held = all(self._holds(value) for value in _operands(node))
        moves = kind is Kind.EXACT or (kind is Kind.ROUNDED and self._is_scaled(node))
        if _is_wide(node):
            self._held[node] = held and (moves or kind in (Kind.STEP, Kind.ORDER))
        if moves or not any(_is_wide(n) for n in node.all_input_nodes):
            return False
        if kind in (Kind.STEP, Kind.ORDER):
            return not held
        return not (kind is Kind.ROUNDED and held and self._is_rounded_next(node))

    def _evaluate(self, node: fx.Node) -> bool:
        """Return whether a call is evaluated before the conversion, in 64 bits; keep its value.

        It depends on constants alone, as in `passes.fold_constants`.
        """
        inputs = node.all_input_nodes
        known = {n: self._value_of(n) for n in inputs}
        if any(value is None for value in known.values()):
            return False
        from_weights = any(n in self._weights or _is_weight(known[n]) for n in inputs)
        if _bytes(node) > (_FOLDED_BYTES if from_weights else _MOST_BYTES):
            return False
        value = _result(node, known)
        if value is None:
            return False
        self._evaluated[node] = value
        if from_weights:
            self._weights.add(node)
        return True

    def _value_of(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self._constants.get(node.name)
        return self._evaluated.get(node)

    def _holds(self, value: Any) -> bool:
        """Return whether float32 holds a number, or all elements of a node, exactly."""
        if isinstance(value, float):
            return _is_exact(torch.tensor(value, dtype=torch.float64))
        if isinstance(value, int):
            return abs(value) <= _HELD
        if not isinstance(value, fx.Node):
            return True
        if value not in self._held:
            self._held[value] = self._holds_operand(value)
        return self._held[value]

    def _holds_operand(self, node: fx.Node) -> bool:
        constant = self._value_of(node)
        if isinstance(constant, torch.Tensor):
            return constant.dtype not in _WIDE or _is_exact(constant)
        if _is_wide(node):
            return False
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and not val.dtype.is_floating_point:
            return val.dtype.is_complex or self._ranges.of(node).reach <= _HELD
        return True

    def _is_scaled(self, node: fx.Node) -> bool:
        """Return whether a call multiplies or divides by a power of two."""
        name, _ = overload(node.target)
        if name not in ("mul", "div", "true_divide"):
            return False
        factors = node.args[1:2] if name != "mul" else node.args[:2]
        return any(_is_power_of_two(self._number(f)) for f in factors)

    def _is_rounded_next(self, node: fx.Node) -> bool:
        """Return whether all users only move or scale a result and cast it to float32.

        An operation on float32 numbers that is rounded to float64, then to float32, has the same
        result as one that is rounded to float32 at once: float64 has more than twice the digits.
        """
        users = [u for u in node.users if not overload(u.target)[0].startswith("_assert")]
        return bool(users) and all(self._rounds(user) for user in users)

    def _rounds(self, user: fx.Node) -> bool:
        if user.op != "call_function":
            return False
        if _is_cast_to_float(user):
            return bool(user.meta["val"].dtype == torch.float32)
        moves = _kind(user) is Kind.EXACT and isinstance(user.target, OpOverload)
        return (moves or self._is_scaled(user)) and self._is_rounded_next(user)

    def _number(self, value: Any) -> Any:
        constant = self._value_of(value) if isinstance(value, fx.Node) else value
        is_number = isinstance(constant, torch.Tensor) and constant.numel() == 1
        return constant.item() if is_number and not constant.is_complex() else constant


def _operands(node: fx.Node) -> Iterator[Any]:
    """Yield what a call computes with: nodes, and numbers among its arguments."""
    yield from node.all_input_nodes
    if any(_is_wide(n) for n in node.all_input_nodes):
        yield from (v for v in pytree.tree_leaves(node.args) if isinstance(v, int | float))


def _kind(node: fx.Node) -> Kind:
    if not isinstance(node.target, OpOverload):
        return Kind.EXACT if not hasattr(node.target, "namespace") else Kind.GENERAL
    if _is_cast_to_float(node):  # rounds what the program has rounded before
        return Kind.EXACT
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    return kind_of(node.target, tuple(args), dict(kwargs), node.meta.get("val"))


def _result(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """Return the result of a call on known operands, or None if it depends on more than them."""
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
    if node.target is operator.getitem:
        return args[0][args[1]]
    is_op = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
    if not is_op or torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)
    if any(isinstance(leaf, symbols) for leaf in pytree.tree_leaves((args, kwargs))):
        return None
    kwargs = {**kwargs, "device": "cpu"} if "device" in kwargs else kwargs
    try:
        with torch.no_grad():
            return node.target(*args, **kwargs)
    except Exception:  # an op that runs elsewhere
        return None


def _is_weight(value: Any) -> bool:
    is_large = isinstance(value, torch.Tensor) and value.numel() > _SHORT
    return is_large and (value.is_floating_point() or value.is_complex())


def _bytes(node: fx.Node) -> int:
    parts = pytree.tree_leaves(node.meta.get("val"))
    return sum(p.numel() * p.element_size() for p in parts if isinstance(p, torch.Tensor))


def _is_cast_to_float(node: fx.Node) -> bool:
    val = node.meta.get("val")
    is_cast = overload(node.target)[0] == "_to_copy"
    return is_cast and isinstance(val, torch.Tensor) and val.dtype.is_floating_point


def _is_wide(node: fx.Node) -> bool:
    parts = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(p, torch.Tensor) and p.dtype in _WIDE for p in parts)


def _is_exact(value: torch.Tensor) -> bool:
    narrow = torch.complex64 if value.is_complex() else torch.float32
    return bool(((value.to(narrow).to(value.dtype) == value) | value.isnan()).all())


def _is_power_of_two(value: Any) -> bool:
    if not isinstance(value, int | float) or not value or not math.isfinite(value):
        return False
    return abs(math.frexp(value)[0]) == 0.5 and 2.0**-100 <= abs(value) <= 2.0**100
