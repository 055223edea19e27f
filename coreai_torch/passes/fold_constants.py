"""Evaluate in torch every node that depends on constants alone.

The native compiler must not get a subgraph of constants: `optimize()` of `table[i[:, None] - i]`
with 363 rows does not return (coreai-core 1.0.0b2), and the runtime folds again at each load. But
a weight must not be copied either: the transposed copy of 1 GB of linear layers takes longer than
their conversion (docs/adr/0011). The origin of the operands separates the two:

- Index arithmetic, masks and tables that the graph generates (`arange`, `full`, `tril`, ...) are
  folded at any size. So is what it computes from them and from small tensors of the model: at most
  16 elements, or integers and booleans of up to 1 MiB, such as the positions that a model registers
  as a buffer.
- Every other tensor of the model is a weight. A result that depends on a weight is folded up to
  1 MiB. Above that, it is folded only if it takes no more bytes than its operands and is not a view
  or copy of them.

A result is stored once, when the first op that stays reads it, with 64-bit numbers narrowed to 32.
Results that only folded nodes read are freed.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..ir import types
from ..ir.constants import compacted
from ..ir.dialect import Value
from ..torch_compat import HigherOrderOperator, OpOverload, aten, has_symbolic_sizes, schema_of
from .pass_graph import PassGraph

UNFOLDED = object()

_SMALL = 1 << 20  # bytes of a result that is folded even if it depends on a weight
_SMALL_WIDENED = 1 << 10  # bytes of the same for 8-bit numbers that are widened: quantized weights
_SHORT = 16  # elements of a tensor that is never a weight
# Ops of other namespaces that quantize; with constants, they compute weights.
_QUANTIZING = (
    "coreai::quantize",
    "quantized_decomposed::choose_qparams",
    "quantized_decomposed::quantize_",
    "torchao::choose_qparams_affine",
    "torchao::quantize_affine",
)
_READ_STRIDES = (
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
)
_UNINITIALISED = {
    "aten::empty.memory_format",
    "aten::empty_like",
    "aten::empty_permuted",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
}


def fold_constants(graph: PassGraph) -> PassGraph:
    """Move the calls that can be evaluated now into the table of constants."""
    constants = {node: _or_empty(node, value) for node, value in graph.constants.items()}
    arguments = dict(graph.arguments)
    for node in graph.arguments:
        if (empty := empty_constant(node.meta.get("val"))) is not None:
            constants[node] = empty
            del arguments[node]
    weights = {node for node, value in constants.items() if _is_weight(value)}
    readers = _Readers(graph)
    calls = []
    for node in graph.calls:
        value = UNFOLDED if node in graph.region_at else _value(node, graph, constants, weights)
        if value is UNFOLDED:
            calls.append(node)
            continue
        constants[node] = value
        if any(n in weights for n in node.all_input_nodes):
            weights.add(node)
        readers.free_operands(node, constants)
    return replace(graph, calls=calls, arguments=arguments, constants=constants)


class _Readers:
    """Finds the folded nodes that nothing reads any more, so that their tensors can be freed."""

    def __init__(self, graph: PassGraph) -> None:
        self._unfolded = set(graph.calls)
        self._results = {result for result in graph.results if isinstance(result, fx.Node)}
        self._has_regions = bool(graph.regions)  # their nodes are read, but are not calls

    def free_operands(self, node: fx.Node, constants: dict[fx.Node, Any]) -> None:
        """Drop the operands of a folded node that were folded too and that nothing else reads."""
        self._unfolded.discard(node)
        for operand in node.all_input_nodes:
            if operand.op == "call_function" and not self._is_read(operand):
                constants.pop(operand, None)

    def _is_read(self, node: fx.Node) -> bool:
        if node in self._results or self._has_regions:
            return True
        return any(user in self._unfolded for user in node.users)


def _or_empty(node: fx.Node, value: Any) -> Any:
    if node.op != "placeholder":
        return value
    empty = empty_constant(node.meta.get("val"))
    return value if empty is None else empty


def _is_weight(value: Any) -> bool:
    """Whether copies of a tensor of the model may cost much; see the top of this file."""
    if isinstance(value, list | tuple):
        return any(map(_is_weight, value))
    if not isinstance(value, torch.Tensor) or value.numel() <= _SHORT:
        return False
    is_number = value.is_floating_point() or value.is_complex()
    is_quantized = value.element_size() == 1 and value.dtype != torch.bool
    return is_number or is_quantized or _bytes(value) > _SMALL


def _value(
    node: fx.Node,
    graph: PassGraph,
    constants: Mapping[fx.Node, Any],
    weights: Collection[fx.Node],
) -> Any:
    """Return the value of a call if it is known now, else `UNFOLDED`."""
    inputs = node.all_input_nodes
    known = all(n in constants for n in inputs)
    if node.target is operator.getitem:
        return _item(node, constants) if known else UNFOLDED
    val = node.meta.get("val")
    empty = empty_constant(val)
    if empty is not None:
        return empty
    if not known:
        return _known_size(node, val, graph)
    if graph.is_custom(node):
        return UNFOLDED
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), constants.__getitem__)
    return fold(node, args, kwargs, at_any_size=not any(n in weights for n in inputs))


def _item(node: fx.Node, constants: Mapping[fx.Node, Any]) -> Any:
    source, index = node.args
    found = constants[source][index]
    return UNFOLDED if found is None else found


def _known_size(node: fx.Node, val: Any, graph: PassGraph) -> Any:
    """Return a symbolic size that is a number after all, else `UNFOLDED`.

    Export may fix a symbol after it recorded it. In the graph of a branch, a placeholder of a
    symbolic size may get a tensor whose size is a number.
    """
    if not isinstance(val, torch.SymInt) or graph.is_custom(node):
        return UNFOLDED
    number = val.node.maybe_as_int()
    if number is not None:
        return number
    if node.target is not aten.sym_size.int or node.args[0] not in graph.arguments:
        return UNFOLDED
    source, axis = node.args
    extent = graph.arguments[source].type.shape[axis]
    return UNFOLDED if extent == types.DYNAMIC else int(extent)


def empty_constant(val: Any) -> Any:
    """Return empty tensors for results of static sizes that have no elements, else None."""
    if isinstance(val, list | tuple):
        parts = [empty_constant(part) for part in val]
        return parts if parts and all(part is not None for part in parts) else None
    if not isinstance(val, torch.Tensor) or has_symbolic_sizes(val) or val.numel():
        return None
    return torch.empty(tuple(val.shape), dtype=val.dtype)


def fold(node: fx.Node, args: Any, kwargs: Any, *, at_any_size: bool = False) -> Any:
    """Return the result of a call if all arguments are known now, else `UNFOLDED`.

    A large result is folded as for a weight, unless `at_any_size`.
    """
    if not _foldable(node.target) or any(_at_run_time(leaf) for leaf in _leaves((args, kwargs))):
        return UNFOLDED
    if not at_any_size and _grows(node, args, kwargs):
        return UNFOLDED
    if isinstance(node.target, OpOverload):
        kwargs = {**kwargs, "device": "cpu"} if "device" in kwargs else kwargs
    try:
        with torch.no_grad():
            result = node.target(*args, **kwargs)
    except Exception:  # not an error yet: the lowering may know better, or will say it better
        return UNFOLDED
    if isinstance(node.target, OpOverload) and node.target.name() in _UNINITIALISED:
        compact = torch.zeros((), dtype=result.dtype).expand(result.shape)
        return torch.zeros_like(result) if _strides_are_read(node) else compact
    compact = compacted(result) if isinstance(result, torch.Tensor) else result
    return result if compact is not result and _strides_are_read(node) else compact


def _strides_are_read(node: fx.Node) -> bool:
    """Whether an op addresses the memory of a result by strides, also through views."""
    return any(
        user.target in _READ_STRIDES
        or (isinstance(user.target, OpOverload) and user.target.is_view and _strides_are_read(user))
        for user in node.users
    )


def is_foldable(node: fx.Node) -> bool:
    """Whether a node takes plain Python values only, so that it always folds."""
    return not node.all_input_nodes and _foldable(node.target)


def _foldable(target: Any) -> bool:
    if isinstance(target, OpOverload):
        seeded = torch.Tag.nondeterministic_seeded in target.tags
        known = target.namespace in ("aten", "prims") or target.name().startswith(_QUANTIZING)
        return known and not seeded and not _mutates(target)
    return not isinstance(target, HigherOrderOperator)


def _mutates(target: OpOverload) -> bool:
    return bool(schema_of(target).is_mutable)


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, list | tuple):
        for part in given:
            yield from _leaves(part)
    elif isinstance(given, dict):
        yield from _leaves(list(given.values()))
    else:
        yield given


def _at_run_time(leaf: Any) -> bool:
    return isinstance(leaf, Value | fx.GraphModule | torch.SymInt | torch.SymFloat | torch.SymBool)


def _grows(node: fx.Node, args: Any, kwargs: Any) -> bool:
    """Whether folding adds many bytes: a large view, copy or widening of a weight."""
    promised = node.meta.get("val")
    results = promised if isinstance(promised, list | tuple) else [promised]
    made = sum(_bytes(r) for r in results)
    given = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if _widens_bytes(given, results):
        return made > _SMALL_WIDENED
    if made <= _SMALL:
        return False
    is_view = isinstance(node.target, OpOverload) and node.target.is_view
    if is_view and all(g.element_size() == 1 for g in given):
        # A quantized weight that is widened next; the lowering of that must see a constant.
        return made > sum(_bytes(g) for g in given)
    is_copy = is_view or "_copy" in getattr(node.target, "__name__", "")
    if is_copy and _is_packed_next(node):
        is_copy = False  # the lowering packs the numbers, and must see a constant
    return bool(given) and (is_copy or made > sum(_bytes(g) for g in given))


def _is_packed_next(node: fx.Node) -> bool:
    """Whether a compression op alone reads a node, directly or through single-user ops."""
    while len(node.users) == 1:
        (node,) = node.users
        if not isinstance(node.target, OpOverload):
            return False
        if node.target.namespace == "coreai":
            return True
    return False


def _widens_bytes(given: list[torch.Tensor], results: Any) -> bool:
    """Whether 8-bit numbers become floats or 32-bit integers, one for one; indices have 64 bits."""
    one = len(given) == 1 and len(results) == 1 and isinstance(results[0], torch.Tensor)
    return (
        one
        and given[0].element_size() == 1
        and given[0].dtype != torch.bool
        and given[0].numel() == results[0].numel()
        and results[0].element_size() > 1
        and (results[0].is_floating_point() or results[0].dtype == torch.int32)
    )


def _bytes(tensor: Any) -> int:
    if not isinstance(tensor, torch.Tensor) or any(not isinstance(s, int) for s in tensor.shape):
        return 0
    return int(tensor.numel() * tensor.element_size())
