"""Tensors without elements: nothing is computed of them, which the run time would not survive.

One whose sizes are all numbers is a constant. Here are those such as `[s0, 0]`, which are empty
whatever `s0` is.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from ..ir.dialect import Dim, Value, broadcast_to, constant, slice_axis, tensor_constant
from ..passes.fold_constants import UNFOLDED, fold
from ..torch_compat import has_symbolic_sizes
from .scope import Scope
from .symbolic_sizes import extents


def constant_without_elements(val: Any) -> Any:
    """Empty tensors for results that are known to be empty, all of their sizes being numbers."""
    if isinstance(val, list | tuple):
        parts = [constant_without_elements(v) for v in val]
        return parts if parts and all(p is not None for p in parts) else None
    if not is_empty(val) or any(type(s) is not int for s in val.shape):
        return None
    return torch.empty(tuple(val.shape), dtype=val.dtype)


def value_without_elements(node: fx.Node, scope: Scope) -> Any:
    """Values for results that are all empty, else None.

    The run time stretches a size of 0 to meet a 1: `[s0, 0] + 1` has the sizes `[s0, 1]` there,
    and a comparison ends the process. None too where a size cannot be told of those held by now.
    """
    promised = node.meta.get("val")
    results = promised if isinstance(promised, list | tuple) else [promised]
    if not results or not all(is_empty(result) for result in results):
        return None
    sizes = [extents(result.shape, node, scope) for result in results]
    if any(each is None for each in sizes):
        return None
    made = [_none_of(each or [], r.dtype) for each, r in zip(sizes, results, strict=True)]
    return made if isinstance(promised, list | tuple) else made[0]


def made_of_no_elements(node: fx.Node, scope: Scope) -> Any:
    """What an op gives whose tensors are empty, known from two trials in torch, else None.

    A sum is 0 and a product 1, of whatever sizes; the run time leaves them unwritten.
    """
    promised, inputs = node.meta.get("val"), node.all_input_nodes
    results = promised if isinstance(promised, list | tuple) else [promised]
    tensors = [n.meta.get("val") for n in inputs if isinstance(scope.nodes.get(n), Value)]
    if not tensors or not all(map(is_empty, tensors)):
        return None
    if not all(isinstance(result, torch.Tensor) for result in results):
        return None
    sizes = [extents(result.shape, node, scope) for result in results]
    trials = [_trial(node, scope, results, start) for start in (11, 17)]
    made = [_spread(one, other, each) for one, other, each in zip(*trials, sizes, strict=True)]
    if any(each is None for each in made):
        return None
    return made if isinstance(promised, list | tuple) else made[0]


def _spread(one: Any, other: Any, sizes: list[Dim] | None) -> Any:
    """What two trials agree on, in the sizes that are asked for."""
    if one is None or other is None or sizes is None or not _same(one, other):
        return None
    if all(isinstance(s, int) for s in sizes):
        return one
    return broadcast_to(tensor_constant(one), sizes)


def _trial(
    node: fx.Node, scope: Scope, promised: Sequence[torch.Tensor], start: int
) -> Sequence[torch.Tensor | None]:
    """The results with symbols as numbers from `start` on: one place of each axis of such a size.

    None if torch cannot tell, if the places differ, or if there are none: `s0 // 2 - 9` of 11.
    """
    nothing = [None] * len(promised)
    given = [n.meta.get("val") for n in node.all_input_nodes]
    sizes = [s for val in (*given, *promised) for s in getattr(val, "shape", ())]
    if any(isinstance(s, torch.SymInt) and _at(s, start) < 1 for s in sizes):
        return nothing

    def held(n: fx.Node) -> Any:
        if not isinstance(scope.nodes[n], Value):
            return scope.nodes[n]
        val = n.meta["val"]
        return torch.empty([_at(s, start) for s in val.shape], dtype=val.dtype)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of nothing
        found = fold(node, *fx.node.map_arg((node.args, dict(node.kwargs)), held))
    if found is UNFOLDED:
        return nothing
    results = found if isinstance(found, list | tuple) else [found]
    return [_one_place(r, p.shape, start) for r, p in zip(results, promised, strict=True)]


def _one_place(result: Any, promised: Sequence[Any], start: int) -> torch.Tensor | None:
    if tuple(result.shape) != tuple(_at(s, start) for s in promised):
        return None
    told: torch.Tensor = result
    for axis, extent in enumerate(promised):
        told = told.narrow(axis, 0, 1) if isinstance(extent, torch.SymInt) else told
    return told if _same(result, told.expand_as(result)) else None


def _at(extent: Any, start: int) -> int:
    if not isinstance(extent, torch.SymInt):
        return int(extent)
    symbols = extent.node.expr.free_symbols
    numbers = {s: start + int(re.sub(r"\D", "", s.name)) % 5 for s in symbols}  # of `s27`, 27
    return int(extent.node.expr.subs(numbers))


def _same(one: Any, other: Any) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


def always_full(node: fx.Node) -> bool:
    """Whether all sizes around a node are numbers, and none is zero: nothing here concerns it."""
    for near in (node, *node.all_input_nodes):
        val = near.meta.get("val")
        for each in val if isinstance(val, list | tuple) else (val,):
            if isinstance(each, torch.Tensor) and (has_symbolic_sizes(each) or not each.numel()):
                return False
    return True


def is_empty(val: Any) -> bool:
    """Whether a tensor has no elements at any values of its symbolic sizes."""
    if not isinstance(val, torch.Tensor):
        return False
    if not has_symbolic_sizes(val):  # told at a tenth of the cost of its shape
        return bool(val.numel() == 0)
    return any(type(s) is int and s == 0 for s in val.shape)


def _none_of(sizes: Sequence[Any], dtype: torch.dtype) -> Value:
    """Cut from a tensor of one element: broadcasting to no element at all is refused."""
    none = [type(s) is int and s == 0 for s in sizes]
    value = broadcast_to(
        constant(0, dtype), [1 if n else s for n, s in zip(none, sizes, strict=True)]
    )
    for axis, cut in enumerate(none):
        value = slice_axis(value, axis, 0, 0) if cut else value
    return value


def may_be_empty(node: fx.Node) -> bool:
    """Whether a size of an operand or result is known at run time only, and may be zero there."""
    vals = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    return any(_has_a_size_of_zero(v) for val in vals for v in (val if _several(val) else (val,)))


def _several(val: Any) -> bool:
    return isinstance(val, list | tuple)


def _has_a_size_of_zero(val: Any) -> bool:
    if not isinstance(val, torch.Tensor) or not has_symbolic_sizes(val):
        return False
    return any(isinstance(s, torch.SymInt) and _may_be_zero(s) for s in val.shape)


def _may_be_zero(extent: torch.SymInt) -> bool:
    """A size that the data decide, or one computed from open ones: `x[2:-1]` of two rows has none.

    An open size itself is two or more: `torch.export` takes that for granted.
    """
    expression = extent.node.expr
    if expression.is_Symbol and not free_unbacked_symbols(extent):
        return False
    known = _POSITIVE.setdefault(extent.node.shape_env, {})
    if expression not in known:  # a tenth of a millisecond each
        known[expression] = extent.node.shape_env.bound_sympy(expression).lower > 0
    return not known[expression]


_POSITIVE: WeakKeyDictionary[ShapeEnv, dict[Any, bool]] = WeakKeyDictionary()
