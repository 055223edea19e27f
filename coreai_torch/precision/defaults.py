"""The nodes that stay in float32 in every half-precision program, with the reason."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator

import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind

from ..fx.programs import stored_tensors
from ..torch_compat import HigherOrderOperator
from .nodes import MOVES, base, is_float, op_name, tensors
from .recast import FULL, is_full

_SUMS = ("add", "sub", "rsub", "lerp", "addcmul", "addcdiv")
_FACTORS = ("mul", "div", "neg")
# Between a product and the factor of a state, which is near 1: float16 has two numbers above 0.999.
_POINTWISE = (*_SUMS, *_FACTORS, *MOVES, "sigmoid", "exp", "tanh", "softplus", "pow", "clamp")
_STATES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def accumulators(program: torch.export.ExportedProgram) -> Iterator[fx.Node]:
    """Yield the nodes between a state and the sum that replaces it, and those of its factors."""
    nodes = {node.name: node for node in program.graph.nodes}
    signature = program.graph_signature
    placeholders = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    for spec in signature.output_specs:
        if spec.kind in _STATES and spec.arg.name in nodes:
            state = placeholders.get(spec.target, spec.target)
            path = _path(nodes[spec.arg.name], nodes.get(str(state)))
            if any(base(node) in _SUMS for node in path):
                yield from path
                for node in path:
                    if base(node) in _FACTORS:
                        yield from _pointwise(node)


def _path(node: fx.Node, state: fx.Node | None) -> list[fx.Node]:
    """Return the nodes from a new value to the old one, if all of them are sums and products."""
    reader: dict[fx.Node, fx.Node | None] = {node: None}  # the node that led to each visited one
    waiting = [node]
    while waiting and state is not None:
        visited = waiting.pop()
        if visited is state or base(visited) not in (*_SUMS, *_FACTORS, *MOVES):
            continue
        for operand in visited.all_input_nodes:
            if _selects(visited, operand):
                continue
            if operand is state:
                return _back(visited, reader)
            if operand not in reader:
                reader[operand] = visited
                waiting.append(operand)
    return []


def _back(node: fx.Node | None, reader: dict[fx.Node, fx.Node | None]) -> list[fx.Node]:
    found = []
    while node is not None:
        found.append(node)
        node = reader[node]
    return found


def _pointwise(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the pointwise ops that compute the operands of a node."""
    seen, open_ = set(), list(node.all_input_nodes)
    while open_:
        operand = open_.pop()
        if operand not in seen and base(operand) in _POINTWISE and is_float(operand):
            seen.add(operand)
            yield operand
            open_.extend(operand.all_input_nodes)


def _selects(node: fx.Node, value: fx.Node) -> bool:
    """Return whether a product with a mask selects elements, as `new * m + old * (1 - m)`."""
    others = [operand for operand in node.all_input_nodes if operand is not value]
    return base(node) == "mul" and any(map(_is_mask, others))


def _is_mask(node: fx.Node) -> bool:
    """Return whether a float was made from a bool or an integer."""
    while is_float(node) and base(node) in (*MOVES, "add", "sub", "rsub", "mul"):
        if len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return not is_float(node)


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
