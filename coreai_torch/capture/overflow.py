"""Finds 64-bit accumulations that 32 bits may not hold, so that none wraps silently."""

from __future__ import annotations

import math
import operator
import warnings
from typing import Any

import torch
import torch.fx as fx

from ..errors import NarrowingWarning, describe, target_name
from .validate import calls

aten = torch.ops.aten
_SUMS = {
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.cumsum.default,
    aten.scatter_add.default,
    aten.index_add.default,
}
_PRODUCTS = {
    aten.prod.default,
    aten.prod.dim_int,
    aten.cumprod.default,
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.pow.Tensor_Tensor,
}
_WIDE = (torch.int64, torch.uint64)
_LIMIT = 2**31


def warn(program: torch.export.ExportedProgram) -> None:
    """One warning that names every accumulation at risk."""
    risky = [node for node in calls(program.graph_module) if _at_risk(node)]
    if not risky:
        return
    named = "\n".join(
        describe(
            node,
            f"{target_name(node.target)} accumulates in 64 bits; the devices have 32, "
            "and a larger result would wrap",
            "a smaller integer range, or floating point, if results beyond 2**31 can occur",
        )
        for node in risky
    )
    warnings.warn(named, NarrowingWarning, stacklevel=3)


def _at_risk(node: fx.Node) -> bool:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.dtype not in _WIDE:
        return False
    if node.target in _PRODUCTS:
        return True
    return node.target in _SUMS and _largest_sum(node) >= _LIMIT


def _largest_sum(node: fx.Node) -> float:
    """How large the sum can get, by the range of its terms and their number."""
    source: Any = node.args[0]
    fake = source.meta["val"]
    terms = _count(fake)
    return terms * _largest(source, fake.dtype)


def _count(fake: torch.Tensor) -> float:
    # A symbolic size counts by its hint's order of magnitude: no shape has 2**20 masks.
    return math.prod(s if type(s) is int else 2**16 for s in fake.shape)


def _largest(source: fx.Node, dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return 1
    if dtype in (torch.int8, torch.uint8):
        return 256
    if dtype == torch.int16:
        return 2**15
    if source.target in (aten._to_copy.default, operator.getitem) or _is_cast(source):
        inner: Any = source.args[0]
        if isinstance(inner, fx.Node) and isinstance(inner.meta.get("val"), torch.Tensor):
            kind = inner.meta["val"].dtype
            if kind not in _WIDE and not kind.is_floating_point and kind != torch.int32:
                return _largest(inner, kind)
    return math.inf


def _is_cast(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and "convert_element_type" in str(
        node.target
    )
