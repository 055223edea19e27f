"""Evaluate in torch every node that depends on constants alone."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..ir import types
from ..ir.dialect import Value
from ..torch_compat import HigherOrderOperator, OpOverload, aten, has_symbolic_sizes, schema_of
from .graph import PassGraph

UNFOLDED = object()

# Larger results are only kept if they cost no more than what they replace.
_SMALL = 1 << 20
# Of bytes that are widened, even fewer: they are the weights of a quantized model.
_SMALL_OF_BYTES = 1 << 10
# Ops of other namespaces that make few bits of many; with constants, they make weights.
_QUANTIZING = (
    "coreai::quantize",
    "quantized_decomposed::choose_qparams",
    "quantized_decomposed::quantize_",
    "torchao::choose_qparams_affine",
    "torchao::quantize_affine",
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
    calls = []
    for node in graph.calls:
        value = UNFOLDED if node in graph.region_at else _value(node, graph, constants)
        if value is UNFOLDED:
            calls.append(node)
        else:
            constants[node] = value
    return replace(graph, calls=calls, arguments=arguments, constants=constants)


def _or_empty(node: fx.Node, value: Any) -> Any:
    if node.op != "placeholder":
        return value
    empty = empty_constant(node.meta.get("val"))
    return value if empty is None else empty


def _value(node: fx.Node, graph: PassGraph, constants: Mapping[fx.Node, Any]) -> Any:
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
    return fold(node, *fx.node.map_arg((node.args, dict(node.kwargs)), constants.__getitem__))


def _item(node: fx.Node, constants: Mapping[fx.Node, Any]) -> Any:
    source, index = node.args
    found = constants[source][index]  # type: ignore[index]  # a node, and a number
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
    extent = graph.arguments[source].type.shape[axis]  # type: ignore[index]  # a placeholder
    return UNFOLDED if extent == types.DYNAMIC else int(extent)


def empty_constant(val: Any) -> Any:
    """Return empty tensors for results of static sizes that have no elements, else None."""
    if isinstance(val, list | tuple):
        parts = [empty_constant(part) for part in val]
        return parts if parts and all(part is not None for part in parts) else None
    if not isinstance(val, torch.Tensor) or has_symbolic_sizes(val) or val.numel():
        return None
    return torch.empty(tuple(val.shape), dtype=val.dtype)


def fold(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """Return the result of a call if all arguments are known now, else `UNFOLDED`."""
    if not _foldable(node.target) or any(_at_run_time(leaf) for leaf in _leaves((args, kwargs))):
        return UNFOLDED
    if node.op == "call_function" and _grows(node, args, kwargs):
        return UNFOLDED
    if isinstance(node.target, OpOverload):
        kwargs = {**kwargs, "device": "cpu"} if "device" in kwargs else kwargs
    try:
        with torch.no_grad():
            result = node.target(*args, **kwargs)
    except Exception:  # not an error yet: the lowering may know better, or will say it better
        return UNFOLDED
    if isinstance(node.target, OpOverload) and node.target.name() in _UNINITIALISED:
        return torch.zeros((), dtype=result.dtype).expand(result.shape)
    return _compact(result)


def is_foldable(node: fx.Node) -> bool:
    """Whether a node takes nothing but plain values, so that it always folds."""
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
    """Whether folding would add large bytes: a view, copy or widening of a weight."""
    promised = node.meta.get("val")
    results = promised if isinstance(promised, list | tuple) else [promised]
    made = sum(_bytes(r) for r in results)
    given = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if _widens_bytes(given, results):
        return made > _SMALL_OF_BYTES
    if made <= _SMALL:
        return False
    is_view = isinstance(node.target, OpOverload) and node.target.is_view
    if is_view and all(g.element_size() == 1 for g in given):
        # A quantized weight on its way to be widened, which is only seen of a constant.
        return made > sum(_bytes(g) for g in given)
    is_copy = is_view or "_copy" in getattr(node.target, "__name__", "")
    if is_copy and _is_packed_next(node):
        is_copy = False  # the lowering makes bytes of its own, and needs to see the numbers
    return bool(given) and (is_copy or made > sum(_bytes(g) for g in given))


def _is_packed_next(node: fx.Node) -> bool:
    """Whether all that comes of a node goes into a compression op, by way of views perhaps."""
    while len(node.users) == 1:
        (node,) = node.users
        if not isinstance(node.target, OpOverload):
            return False
        if node.target.namespace == "coreai":
            return True
    return False


def _widens_bytes(given: list[torch.Tensor], results: Any) -> bool:
    """Whether 8-bit numbers become floats or 32-bit ones, place by place; indices have 64."""
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


def _compact(result: Any) -> Any:
    """A tensor of one value repeated is held as that value, expanded."""
    if not isinstance(result, torch.Tensor) or result.numel() < 256:
        return result
    first = result.flatten()[0]
    if bool((result == first).all()):
        return first.clone().expand(result.shape)
    return result
