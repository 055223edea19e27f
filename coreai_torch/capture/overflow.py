"""Warn about 64-bit integer arithmetic that may overflow 32 bits."""

from __future__ import annotations

import warnings

import torch
import torch.fx as fx

from ..errors import NarrowingWarning, describe, target_name
from ..fx.programs import stored_tensors
from .validate import calls
from .value_ranges import WIDEST, Ranges, op_name

# fmt: off
_ACCUMULATES = {
    "sum", "cumsum", "prod", "cumprod", "mm", "bmm", "matmul", "addmm", "baddbmm", "scatter_add",
    "index_add", "pow",
}
# fmt: on
# A product of unknown numbers may overflow but rarely does; warn if one factor is large, or if one
# is a number and the graph bounds the other: (hash & 0xFFFFF) * 7919 reaches 8.3e9.
_SCALES = {"mul", "bitwise_left_shift", "__lshift__"}
_LARGE = 2**16
_UNKNOWN = 2**30  # `clamp(min=1) - 1` bounds only one end
_WIDE = (torch.int64, torch.uint64)


def warn(program: torch.export.ExportedProgram) -> None:
    """Issue one warning that names every operation at risk."""
    ranges = Ranges(stored_tensors(program, states=False))
    risky = [node for node in calls(program.graph_module) if _at_risk(ranges, node)]
    if not risky:
        return
    named = "\n".join(
        describe(
            node,
            f"{target_name(node.target)} computes in 64 bits, devices compute in 32, and a larger "
            "result would overflow",
            "use a smaller integer range, or floating point, if results can exceed 2**31",
        )
        for node in risky
    )
    warnings.warn(named, NarrowingWarning, stacklevel=3)


def _at_risk(ranges: Ranges, node: fx.Node) -> bool:
    """Return whether a result may overflow 32 bits although every operand fits."""
    found = ranges.infer(node)
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.dtype not in _WIDE or found & WIDEST == found:
        return False
    name = op_name(node)
    if name in _ACCUMULATES:
        return True
    return name in _SCALES and (_has_large_factor(ranges, node) or _is_bounded(ranges, node))


def _is_bounded(ranges: Ranges, node: fx.Node) -> bool:
    """Return whether one factor is a number and the range of the other is known at both ends."""
    factors = [ranges.of(factor) for factor in node.args[:2]]
    has_number = any(factor.low == factor.high for factor in factors)
    return has_number and all(factor.reach < _UNKNOWN for factor in factors)


def _has_large_factor(ranges: Ranges, node: fx.Node) -> bool:
    second = ranges.of(node.args[1])
    if op_name(node) != "mul":
        return second.low >= _LARGE.bit_length() - 1
    return any(f.low >= _LARGE or f.high <= -_LARGE for f in (ranges.of(node.args[0]), second))
