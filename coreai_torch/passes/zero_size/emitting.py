"""Emit the results of nodes whose results or operands have no elements.

These are tensors such as `[s0, 0]`, which are empty whatever `s0` is. The runtime broadcasts a
size of 0 to 1: `[s0, 0] + 1` has the sizes `[s0, 1]` there, and a comparison ends the process
(coreai-core 1.0.0b2).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ...ir.dialect import Dim, Value, broadcast_to, constant, slice_axis, tensor_constant
from ..fold_constants import UNFOLDED, fold
from ..pass_graph import Lower, Values
from .symbolic_sizes import extents


@dataclass(frozen=True)
class Empty:
    """A call whose results, or whose operands that are computed at run time, have no elements."""

    reads: list[fx.Node]
    results: bool
    operands: bool
    layer: None = None

    def __str__(self) -> str:
        return "empty results" if self.results else "empty operands"

    def emit(self, node: fx.Node, values: Values, lower: Lower) -> Any:
        """Return empty results, or results that no element contributes to; None if unknown."""
        found = _empty_results(node, values) if self.results else None
        if found is None and self.operands:
            found = _results_of_empty_operands(node, values)
        return found


def _empty_results(node: fx.Node, values: Values) -> Any:
    """Return values of the promised sizes for results that are all empty.

    Return None if a size cannot be computed from the values in the scope.
    """
    promised = node.meta.get("val")
    results = promised if isinstance(promised, list | tuple) else [promised]
    sizes = [extents(result.shape, node, values) for result in results]
    if any(each is None for each in sizes):
        return None
    made = [_none_of(each or [], r.dtype) for each, r in zip(sizes, results, strict=True)]
    return made if isinstance(promised, list | tuple) else made[0]


def _results_of_empty_operands(node: fx.Node, values: Values) -> Any:
    """Return what an op computes of empty operands if two trials in torch agree, else None.

    A sum is 0 and a product 1, whatever the sizes; the runtime leaves them unwritten.
    """
    promised = node.meta.get("val")
    results = promised if isinstance(promised, list | tuple) else [promised]
    if not all(isinstance(result, torch.Tensor) for result in results):
        return None
    sizes = [extents(result.shape, node, values) for result in results]
    trials = [_trial(node, values, results, start) for start in (11, 17)]
    made = [_spread(one, other, each) for one, other, each in zip(*trials, sizes, strict=True)]
    if any(each is None for each in made):
        return None
    return made if isinstance(promised, list | tuple) else made[0]


def _spread(one: Any, other: Any, sizes: list[Dim] | None) -> Any:
    """Return the result that two trials agree on, broadcast to the given sizes, else None."""
    if one is None or other is None or sizes is None or not _same(one, other):
        return None
    if all(isinstance(s, int) for s in sizes):
        return one
    return broadcast_to(tensor_constant(one), sizes)


def _trial(
    node: fx.Node, values: Values, promised: Sequence[torch.Tensor], start: int
) -> Sequence[torch.Tensor | None]:
    """Return the results with numbers from `start` on for symbols, with dynamic axes reduced to 1.

    None if torch fails, if elements along a dynamic axis differ, or if a size is not positive:
    `s0 // 2 - 9` at 11.
    """
    nothing = [None] * len(promised)
    given = [n.meta.get("val") for n in node.all_input_nodes]
    sizes = [s for val in (*given, *promised) for s in getattr(val, "shape", ())]
    if any(isinstance(s, torch.SymInt) and _at(s, start) < 1 for s in sizes):
        return nothing

    def operand(n: fx.Node) -> Any:
        if not isinstance(values.nodes[n], Value):
            return values.nodes[n]
        val = n.meta["val"]
        return torch.empty([_at(s, start) for s in val.shape], dtype=val.dtype)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about the variance of an empty tensor
        found = fold(node, *fx.node.map_arg((node.args, dict(node.kwargs)), operand))
    if found is UNFOLDED:
        return nothing
    results = found if isinstance(found, list | tuple) else [found]
    return [_one_place(r, p.shape, start) for r, p in zip(results, promised, strict=True)]


def _one_place(result: Any, promised: Sequence[Any], start: int) -> torch.Tensor | None:
    if tuple(result.shape) != tuple(_at(s, start) for s in promised):
        return None
    one: torch.Tensor = result
    for axis, extent in enumerate(promised):
        one = one.narrow(axis, 0, 1) if isinstance(extent, torch.SymInt) else one
    return one if _same(result, one.expand_as(result)) else None


def _at(extent: Any, start: int) -> int:
    if not isinstance(extent, torch.SymInt):
        return int(extent)
    symbols = extent.node.expr.free_symbols
    numbers = {s: start + int(re.sub(r"\D", "", s.name)) % 5 for s in symbols}  # of `s27`, 27
    return int(extent.node.expr.subs(numbers))


def _same(one: Any, other: Any) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _none_of(sizes: Sequence[Any], dtype: torch.dtype) -> Value:
    """Slice a tensor of ones to zero sizes; broadcasting to a zero size is rejected."""
    none = [type(s) is int and s == 0 for s in sizes]
    value = broadcast_to(
        constant(0, dtype), [1 if n else s for n, s in zip(none, sizes, strict=True)]
    )
    for axis, cut in enumerate(none):
        value = slice_axis(value, axis, 0, 0) if cut else value
    return value
