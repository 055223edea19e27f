"""Infer ranges of the integers in a graph by interval arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx


@dataclass(frozen=True)
class Interval:
    """The integers from `low` to `high`, both included."""

    low: int
    high: int

    @property
    def reach(self) -> int:
        """Return the largest magnitude in the interval."""
        return max(abs(self.low), abs(self.high))

    def __or__(self, other: Interval) -> Interval:
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def __and__(self, other: Interval) -> Interval:
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high) if low <= high else other

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(ends), max(ends))

    def at_least(self, other: Interval) -> Interval:
        """Return the interval of the maximum of two numbers."""
        return Interval(max(self.low, other.low), max(self.high, other.high))

    def at_most(self, other: Interval) -> Interval:
        """Return the interval of the minimum of two numbers."""
        return Interval(min(self.low, other.low), min(self.high, other.high))

    def repeated(self, times: int) -> Interval:
        """Return the interval of a sum of up to `times` such numbers."""
        return self * Interval(0, times)


ZERO = Interval(0, 0)
WIDEST = Interval(-(2**31), 2**31 - 1)  # the range of int32, to which int64 is narrowed
LONGEST = 2**16  # the assumed upper bound of a dynamic size

Rule = Callable[["Ranges", fx.Node], Interval]


class Ranges:
    """Store the ranges of the nodes seen so far; an unknown value is assumed to fit 32 bits."""

    def __init__(self, constants: Mapping[str, torch.Tensor]) -> None:
        self._constants = constants
        self._known: dict[fx.Node, Interval] = {}

    def infer(self, node: fx.Node) -> Interval:
        """Return the range of a call's result before narrowing; store it narrowed to 32 bits."""
        val = node.meta.get("val")
        limits = _limits(val)
        rule = _RULES.get(op_name(node)) if _is_integer(val) else None
        found = rule(self, node) if rule else limits
        self._known[node] = found & limits
        return found

    def of(self, given: Any) -> Interval:
        """Return the range of a node, of a number, or of all elements of a list."""
        if isinstance(given, list | tuple):
            return _union(self.of(g) for g in given)
        if isinstance(given, bool | int):
            return Interval(int(given), int(given))
        if not isinstance(given, fx.Node):
            return WIDEST
        if given not in self._known:
            constant = self._constants.get(given.name)
            limits = _limits(given.meta.get("val"))
            self._known[given] = limits if constant is None else _span(constant) & limits
        return self._known[given]


def _union(intervals: Iterable[Interval]) -> Interval:
    found = list(intervals)
    return Interval(min(i.low for i in found), max(i.high for i in found)) if found else ZERO


def _span(tensor: torch.Tensor) -> Interval:
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return WIDEST
    low, high = torch.aminmax(tensor.to(torch.int64))
    return Interval(int(low), int(high))


def _is_integer(val: Any) -> bool:
    """Return whether the values are integers."""
    first = val[0] if isinstance(val, list | tuple) and val else val
    if not isinstance(first, torch.Tensor):
        return isinstance(first, torch.SymInt)
    return not first.dtype.is_floating_point and not first.dtype.is_complex


def _limits(val: Any) -> Interval:
    """Return the range of the dtype."""
    if isinstance(val, torch.SymInt):
        return Interval(0, upper_bound(val))
    dtype = val.dtype if isinstance(val, torch.Tensor) else None
    if dtype == torch.bool:
        return Interval(0, 1)
    if dtype in (torch.int8, torch.uint8, torch.int16, torch.uint16):
        return Interval(torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return WIDEST


def upper_bound(size: Any) -> int:
    """Return a size, or an upper bound for a dynamic one."""
    if isinstance(size, int):
        return size
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    return int(upper) if upper.is_finite and upper < LONGEST else LONGEST


def element_count(node: fx.Node, position: int = 0) -> int:
    """Return the number of elements of an argument."""
    source: Any = node.args[position]
    return math.prod(upper_bound(s) for s in source.meta["val"].shape)


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument by its position or its name."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def op_name(node: fx.Node) -> str:
    """Return the name that all overloads of an op share."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))


def _first(ranges: Ranges, node: fx.Node) -> Interval:
    return ranges.of(node.args[0])


def _any_of(*positions: int) -> Rule:
    return lambda ranges, node: _union(
        ranges.of(node.args[p]) for p in positions if p < len(node.args)
    )


def _index(ranges: Ranges, node: fx.Node) -> Interval:
    """Return the range of an index into one of the tensor arguments, along any axis."""
    tensors = [
        i
        for i, a in enumerate(node.args)
        if isinstance(a, fx.Node) and isinstance(a.meta.get("val"), torch.Tensor)
    ]
    return Interval(0, max(element_count(node, i) for i in tensors))


def _item(ranges: Ranges, node: fx.Node) -> Interval:
    source: Any = node.args[0]
    if node.args[1] == 1 and op_name(source) in _RETURNS_INDICES:
        return _index(ranges, source)
    return ranges.of(source)


def _arange(ranges: Ranges, node: fx.Node) -> Interval:
    bounds = [ranges.of(a) for a in node.args[:2]]
    return _union(bounds) | ZERO if len(bounds) == 1 else _union(bounds)


def _sum_of_two(ranges: Ranges, node: fx.Node) -> Interval:
    alpha = ranges.of(argument(node, 2, "alpha", 1))
    return ranges.of(node.args[0]) + ranges.of(node.args[1]) * alpha


def _difference(ranges: Ranges, node: fx.Node) -> Interval:
    alpha = ranges.of(argument(node, 2, "alpha", 1))
    return ranges.of(node.args[0]) + -(ranges.of(node.args[1]) * alpha)


def _product(ranges: Ranges, node: fx.Node) -> Interval:
    return ranges.of(node.args[0]) * ranges.of(node.args[1])


def _shift(ranges: Ranges, node: fx.Node) -> Interval:
    by = ranges.of(node.args[1])
    return ranges.of(node.args[0]) * Interval(1, 2 ** max(0, min(by.high, 64)))


def _magnitude(ranges: Ranges, node: fx.Node) -> Interval:
    return Interval(0, ranges.of(node.args[0]).reach)


def _quotient(ranges: Ranges, node: fx.Node) -> Interval:
    """Return the range of a quotient: its magnitude is at most that of the dividend."""
    dividend = ranges.of(node.args[0])
    if ranges.of(node.args[1]).low > 0:
        return dividend | Interval(-1, 0) if dividend.low < 0 else dividend | ZERO
    return dividend | -dividend


def _remainder(ranges: Ranges, node: fx.Node) -> Interval:
    divisor = ranges.of(node.args[1])
    most = max(divisor.reach - 1, 0)
    return Interval(0 if divisor.low > 0 else -most, most)


def _fmod(ranges: Ranges, node: fx.Node) -> Interval:
    most = max(ranges.of(node.args[1]).reach - 1, 0)
    return Interval(0 if ranges.of(node.args[0]).low >= 0 else -most, most)


def _masked_bits(ranges: Ranges, node: fx.Node) -> Interval:
    tops = [r.high for r in (ranges.of(node.args[0]), ranges.of(node.args[1])) if r.low >= 0]
    return Interval(0, min(tops)) if tops else WIDEST


def _clamp(ranges: Ranges, node: fx.Node) -> Interval:
    least, most = argument(node, 1, "min"), argument(node, 2, "max")
    found = ranges.of(node.args[0])
    if least is not None:
        found = found.at_least(ranges.of(least))
    return found if most is None else found.at_most(ranges.of(most))


def _maximum(ranges: Ranges, node: fx.Node) -> Interval:
    return ranges.of(node.args[0]).at_least(ranges.of(node.args[1]))


def _minimum(ranges: Ranges, node: fx.Node) -> Interval:
    return ranges.of(node.args[0]).at_most(ranges.of(node.args[1]))


def _reduced_count(node: fx.Node) -> int:
    """Return the number of elements that a reduction over `dim` combines into one."""
    source: Any = node.args[0]
    dims = argument(node, 1, "dim")
    if dims is None or dims == []:
        return element_count(node)
    sizes = source.meta["val"].shape
    axes = [dims] if isinstance(dims, int) else dims
    return math.prod(upper_bound(sizes[axis]) for axis in axes if sizes)


def _reduced_sum(ranges: Ranges, node: fx.Node) -> Interval:
    return _first(ranges, node).repeated(_reduced_count(node))


def _reduced_product(ranges: Ranges, node: fx.Node) -> Interval:
    factor, count = _first(ranges, node).reach, _reduced_count(node)
    most = factor ** min(count, 64) if factor > 1 else factor
    return Interval(0 if _first(ranges, node).low >= 0 else -most, max(most, 1))


def _power(ranges: Ranges, node: fx.Node) -> Interval:
    base, exponent = ranges.of(node.args[0]), ranges.of(node.args[1])
    most = base.reach ** max(0, min(exponent.high, 64)) if base.reach > 1 else 1
    return Interval(0 if base.low >= 0 else -most, most)


def _matrix_product(first: int) -> Rule:
    """Return the rule for a matrix product of two consecutive arguments."""

    def rule(ranges: Ranges, node: fx.Node) -> Interval:
        source: Any = node.args[first]
        inner = upper_bound(source.meta["val"].shape[-1])
        product = ranges.of(source) * ranges.of(node.args[first + 1])
        return product.repeated(inner) + (ranges.of(node.args[0]) if first else ZERO)

    return rule


def _scatter_add(ranges: Ranges, node: fx.Node) -> Interval:
    """Return the range of `self` plus elements of the source that may all have the same index."""
    return ranges.of(node.args[0]) + ranges.of(node.args[3]).repeated(element_count(node, 3))


# fmt: off
_KEEPS_RANGE = (
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select",
    "squeeze", "unsqueeze", "clone", "alias", "detach", "flip", "roll", "repeat", "gather", "index",
    "index_select", "diagonal", "unfold", "as_strided", "_to_copy", "sort", "topk", "max", "min",
    "amax", "amin", "kthvalue", "median", "mode", "cummax", "cummin", "lift_fresh_copy", "split",
    "split_with_sizes", "chunk", "unbind", "contiguous", "cat", "stack", "scalar_tensor",
)
# fmt: on
_RETURNS_INDICES = {"sort", "topk", "max", "min", "kthvalue", "median", "mode", "cummax", "cummin"}
_INDICES = ("argmax", "argmin", "argsort", "nonzero", "searchsorted", "bucketize")

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_KEEPS_RANGE, _first),
    **dict.fromkeys(_INDICES, _index),
    **dict.fromkeys(("full", "full_like"), _any_of(1)),
    **dict.fromkeys(("div", "floor_divide"), _quotient),
    **dict.fromkeys(("maximum", "clamp_min"), _maximum),
    **dict.fromkeys(("minimum", "clamp_max"), _minimum),
    **dict.fromkeys(("sum", "cumsum"), _reduced_sum),
    **dict.fromkeys(("prod", "cumprod"), _reduced_product),
    **dict.fromkeys(("mm", "bmm", "matmul"), _matrix_product(0)),
    **dict.fromkeys(("addmm", "baddbmm"), _matrix_product(1)),
    **dict.fromkeys(("scatter_add", "index_add"), _scatter_add),
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), _shift),
    "getitem": _item,
    "arange": _arange,
    "where": _any_of(1, 2),
    "masked_fill": _any_of(0, 2),
    "constant_pad_nd": _any_of(0, 2),
    "slice_scatter": _any_of(0, 1),
    "select_scatter": _any_of(0, 1),
    "scatter": _any_of(0, 3),
    "index_put": _any_of(0, 2),
    "copy": _any_of(1),
    "add": _sum_of_two,
    "sub": _difference,
    "mul": _product,
    "pow": _power,
    "neg": lambda ranges, node: -_first(ranges, node),
    "abs": _magnitude,
    "relu": lambda ranges, node: _first(ranges, node).at_least(ZERO),
    "remainder": _remainder,
    "fmod": _fmod,
    "bitwise_and": _masked_bits,
    "clamp": _clamp,
}
