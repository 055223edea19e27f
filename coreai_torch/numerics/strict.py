"""Limits that need no error analysis: what is nearer to torch than these is right.

They are relative to the values around an element, which have errors of about the same size. Behind
a long chain of ops that round, single elements may be further, as those of a normal distribution
are, if most are much nearer. A result beyond these limits is not wrong, but needs the analysis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.fx as fx

from ..ir.types import narrow
from ..torch_compat import pytree
from .compare import Allowed, widen
from .rounding import Kind, is_float, kind_of
from .tolerance import STRICT

_ROUNDING = (Kind.ROUNDED, Kind.SUM, Kind.GENERAL)
_RARE = 64  # of n values, k may be smaller than k / (64 n) of those around them
_ROW, _OWN = 4096, 2048.0  # a short row, and the most that its largest value is times an element
_FURTHEST = 5.0  # times the limit that single elements behind a long chain of ops may be
_TYPICAL = 0.5  # of the limit: the root mean square of such a result's errors
_TAIL = 16.0  # times the median: none of a million normal numbers is further than 8 times
_MANY = 1024  # elements of a channel that has its own median
_DIGITS = {torch.float32, torch.complex64}  # whose limits are several units


@dataclass(frozen=True)
class StrictLimit:
    """The limits of one result; `growth` is how many times as far single elements may be."""

    allowed: Allowed
    growth: float = 1.0

    @classmethod
    def of(cls, want: torch.Tensor, chain: int) -> StrictLimit:
        """Return the limits of a result behind a chain of ops that round, or of none."""
        want = want.to(narrow(want.dtype))
        growth = math.sqrt(chain) / 2 if want.dtype in _DIGITS else 1.0
        allowed = strictly(want, computed=chain > 0)
        return cls(allowed, min(_FURTHEST, max(1.0, growth)))

    def accepting(self, got: torch.Tensor, want: torch.Tensor) -> Allowed | None:
        """Return the limits that accept a result, or None."""
        want = want.detach().to(narrow(want.dtype))
        if got.dtype != want.dtype or got.shape != want.shape:
            return None
        a, b, limit = widen(got), widen(want), self.allowed.error
        error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
        share = error / limit.where(
            error > 0, torch.ones_like(limit)
        )  # infinite where limits are 0
        most = float(share.max()) if share.numel() else 0.0
        if most <= 1:
            return self.allowed
        if most <= self.growth and _is_spread(share):  # NaN is not
            return Allowed(self.growth * limit)
        return None


def _is_spread(share: torch.Tensor) -> bool:
    """Return whether errors, as shares of their limits, are those of rounding in all elements.

    Wrong elements are further than most others, in their channel too.
    """
    if float(share.square().mean()) > _TYPICAL**2:
        return False
    typical = share.median()
    for axis, length in enumerate(share.shape):
        if length > 1 and share.numel() // length >= _MANY:
            channels = share.movedim(axis, 0).reshape(length, -1)
            if float(channels.square().mean(1).max()) > 1:
                return False
            sizes = [-1 if a == axis else 1 for a in range(share.dim())]
            typical = torch.maximum(typical, channels.median(1).values.reshape(sizes))
    return bool((share <= _TAIL * typical).all())


def strictly(want: torch.Tensor, *, computed: bool) -> Allowed:
    """Return the limits of a result; zeros, and what no op rounded, must be equal."""
    if not computed or want.dtype not in STRICT or not want.numel():
        return Allowed(torch.zeros(want.shape, dtype=torch.float64))
    size = widen(want).abs()
    size = torch.where(size.isfinite(), size, 0.0)
    around = _around(size)
    if _has_small_values_of_their_own(size / around):
        around = size
    elif sum(length > 1 for length in size.shape) == 1 and size.numel() <= _ROW:
        around = torch.minimum(around, _OWN * size)  # one row: other axes tell no scales apart
    return Allowed(STRICT[want.dtype].limit * torch.where(size > 0, around, 0.0))


def _around(size: torch.Tensor) -> torch.Tensor:
    """Return the largest value along the axis on which the values around an element are smallest.

    So a row of large coordinates does not widen the limits of a row of scores.
    """
    lines = [size.amax(axis, keepdim=True) for axis, length in enumerate(size.shape) if length > 1]
    around = lines[0] if lines else size
    for line in lines[1:]:
        around = torch.minimum(around, line)
    return around.expand(size.shape)


def _has_small_values_of_their_own(ratio: torch.Tensor) -> bool:
    """Return whether values are too small for results of one kind that are near zero by chance.

    `cat([x * 1e6, sin(x)])` has a small error in its second half. Of n normal numbers, about k
    are smaller than k / n times a few of them.
    """
    small = ratio[(ratio > 0) & (ratio < 1 / _RARE)].sort().values
    rank = torch.arange(1, len(small) + 1, dtype=torch.float64)
    return bool((small * _RARE * ratio.numel() < rank).any())


def computed_nodes(graph: fx.Graph) -> Mapping[fx.Node, int]:
    """Return the nodes whose elements were all rounded, rather than moved or selected.

    Each has the length of the longest chain of ops that round before it.
    """
    chains: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "call_function" and _has_floats(node):
            operands = [n for n in node.all_input_nodes if _has_floats(n)]
            keeps = bool(operands) and all(n in chains for n in operands)
            kind = _kind(node)
            if kind in _ROUNDING or (kind is Kind.EXACT and keeps):
                before = max((chains.get(n, 0) for n in operands), default=0)
                chains[node] = before + (kind in _ROUNDING)
    return chains


def _kind(node: fx.Node) -> Kind | None:
    if any("val" not in n.meta for n in node.all_input_nodes):
        return None
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return kind_of(node.target, args, kwargs, node.meta["val"])


def _has_floats(node: fx.Node) -> bool:
    parts = pytree.tree_leaves(node.meta.get("val"))
    return any(map(is_float, parts))
