"""The nodes that stay in float32 in every half-precision program, with the reason."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ..fx.programs import stored_tensors
from ..torch_compat import HigherOrderOperator
from .accumulators import accumulators
from .nodes import base, op_name, tensors
from .recast import FULL, is_full

_ORDERING = (
    *("topk", "sort", "argsort", "argmax", "argmin", "max.dim", "min.dim", "kthvalue", "median"),
    *("searchsorted", "bucketize", "nonzero", "multinomial", "cumsum", "cummax", "cummin"),
)
_LINEAR_ALGEBRA = ("linalg_", "_linalg_", "_fft_", "cholesky", "inverse", "triangular_solve", "lu")
_STATISTICS = ("rsqrt", "sqrt")
# What leads to a root in a norm: the mean of squares plus eps.
_NORM = ("add", "mean", "sum", "var", "pow", "clamp", "clamp_min", "maximum", "div")


def defaults(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the names of the nodes to keep in float32, with the reason."""
    kept: dict[str, str] = {}
    tables = _tables(program)
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        reason = _reason(node) or tables.get(node.name, "")
        if reason:
            kept[node.name] = reason
        if base(node) in _STATISTICS:
            kept.update((n.name, "statistics of a norm") for n in _statistics(node))
    kept.update((node.name, "a state that is added to") for node in accumulators(program))
    return kept


def _reason(node: fx.Node) -> str:
    name = op_name(node)
    if isinstance(node.target, HigherOrderOperator):
        return "control flow"
    if name in _ORDERING or base(node) in _ORDERING:
        return "positions and indices"
    if name.startswith(_LINEAR_ALGEBRA) or _has_complex(node):
        return "torch has no half-precision kernel"
    if _is_promoted(node):
        return "integers become float32 here"
    return ""


def is_choice(node: fx.Node) -> bool:
    """Return whether a node compares values and returns positions."""
    ordering = op_name(node) in _ORDERING or base(node) in _ORDERING
    return ordering and any(not v.is_floating_point() for v in tensors(node))


def _has_complex(node: fx.Node) -> bool:
    return any(v.is_complex() for n in (node, *node.all_input_nodes) for v in tensors(n))


def _is_promoted(node: fx.Node) -> bool:
    """Return whether a float32 result comes from integers alone, as in `torch.arange(4) / 2`."""
    if not any(is_full(v) for v in tensors(node)) or FULL in (*node.args, *node.kwargs.values()):
        return False
    return not any(v.is_floating_point() for n in node.all_input_nodes for v in tensors(n))


def _statistics(root: fx.Node) -> Iterator[fx.Node]:
    """Yield a root and the mean of squares below it."""
    yield root
    for node in root.all_input_nodes:
        square = base(node) == "mul" and len(node.all_input_nodes) == 1
        if node.op == "call_function" and (base(node) in _NORM or square):
            yield from _statistics(node)


def masks(program: torch.export.ExportedProgram, dtype: torch.dtype) -> set[str]:
    """Return the tables with constants that are finite in float32 and infinite in half precision.

    The lowest float32 would be -inf in float16, and softmax over a row of masked scores NaN, which
    float32 gives equal weights.
    """
    largest: dict[str, float] = {}
    for name, value in stored_tensors(program).items():
        if is_full(value) and value.numel():
            largest[name] = float(value.detach().abs().max())
    tables = _tables(program)
    for node in program.graph.nodes:
        if node.op == "call_function":
            numbers = [abs(n) for n in (*node.args, *node.kwargs.values()) if type(n) is float]
            given = [largest.get(n.name, 0.0) for n in node.all_input_nodes]
            largest[node.name] = max([0.0, *numbers, *given])
    most = torch.finfo(dtype).max
    return {name for name in tables if most < largest[name] < math.inf}


def _tables(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the nodes computed from positions and buffers alone: rotary tables, masks."""
    fixed, states = set(), {*program.graph_signature.buffers_to_mutate.values()}
    for spec in program.graph_signature.input_specs:
        is_table = spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        if is_table and spec.target not in states:
            fixed.add(getattr(spec.arg, "name", ""))
    kept = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and not any(v.is_floating_point() for v in tensors(node)):
            fixed.add(node.name)
        if node.op == "call_function" and all(n.name in fixed for n in node.all_input_nodes):
            fixed.add(node.name)
            if any(is_full(v) for v in tensors(node)):
                kept[node.name] = "a table of positions"
    return kept
