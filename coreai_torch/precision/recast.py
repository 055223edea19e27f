"""Rewrite a captured program so that it computes in half precision, with exceptions.

Nodes keep their names, sizes and sources. A node outside `kept` gets its float32 operands cast to
the half dtype, and its float32 results become that dtype. A node in `kept` gets them cast back, and
so does a node without float32 results that reads one float32 operand.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ..fx.editing import Writer
from ..fx.marks import is_mark
from ..fx.programs import copied_module, name_of, with_graph
from ..torch_compat import aten, pytree
from .externalized import Calls, begins, nodes_of_call

FULL = torch.float32


def recast(
    program: torch.export.ExportedProgram,
    kept: Collection[str],
    dtype: torch.dtype,
    *,
    half_ports: bool = False,
    weights: WeightCasts | None = None,
    masks: Collection[str] = (),
) -> torch.export.ExportedProgram:
    """Return a copy of the program in half precision; the nodes named in `kept` stay in float32.

    Programs that share `weights` share the weights in half precision, too. Values of the nodes in
    `masks` are clamped to finite numbers of the half dtype.
    """
    module = copied_module(program.graph_module)
    casts = WeightCasts(dtype) if weights is None else weights
    rewrite = _Recast(program, module.graph, frozenset(kept), casts, half_ports, frozenset(masks))
    state = rewrite.run()
    inputs = _cast_all(program.example_inputs, dtype) if half_ports else None
    return with_graph(program, module, weights=state, example_inputs=inputs)


def _cast_all(value: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if is_full(leaf) else leaf, value)


def is_full(value: Any) -> bool:
    """Return whether a value is a tensor of float32."""
    return isinstance(value, torch.Tensor) and value.dtype == FULL


def mask_bound(dtype: torch.dtype) -> float:
    """Return the largest number of a mask: the sum with a score must not overflow.

    -65504 - 20 is -inf in float16.
    """
    return 0.6 * float(torch.finfo(dtype).max)


def _finite(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a buffer whose finite numbers stay finite in another dtype, as those of masks."""
    if isinstance(value, torch.nn.Parameter):
        return value
    numbers, bound = torch.isfinite(value), mask_bound(dtype)
    if not bool((numbers & (value.abs() > torch.finfo(dtype).max)).any()):
        return value
    return torch.where(numbers, value.clamp(-bound, bound), value)


def has_full_result(node: fx.Node) -> bool:
    """Return whether a node computes float32 in the original program.

    Others, as comparisons and casts to integers, read float32 as it is: 1e5 would be infinite in
    float16.
    """
    found = node.meta.get("val")
    return any(is_full(value) for value in (found if isinstance(found, tuple | list) else [found]))


class WeightCasts:
    """Weights in half precision, one copy of each."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the weight in half precision."""
        if id(value) not in self._made:  # the original is stored too, so that its id stays its own
            cast = _finite(value, self.dtype).detach().to(self.dtype)
            if isinstance(value, torch.nn.Parameter):
                cast = torch.nn.Parameter(cast, requires_grad=False)
            self._made[id(value)] = (value, cast)
        return self._made[id(value)][1]


class _Recast:
    """One rewrite of a graph."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        graph: fx.Graph,
        kept: frozenset[str],
        weights: WeightCasts,
        half_ports: bool,
        masks: frozenset[str],
    ) -> None:
        self._program, self._graph, self._kept, self._masks = program, graph, kept, masks
        self._weight_casts, self._dtype, self._half_ports = weights, weights.dtype, half_ports
        self._casts: dict[tuple[Any, ...], fx.Node] = {}
        self._calls = Calls()
        self._has_marks = any(is_mark(node) for node in graph.nodes)

    def run(self) -> dict[str, torch.Tensor]:
        """Rewrite the graph; return the weights that change their dtype."""
        state = self._weights()
        for node in list(self._graph.nodes):
            if is_mark(node):
                self._mark(node)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                self._output(node)
        return state

    def _weights(self) -> dict[str, torch.Tensor]:
        """Cast weights that only half-precision nodes use, and the inputs if asked."""
        stored = {**self._program.state_dict, **self._program.constants}
        nodes = {node.name: node for node in self._graph.nodes if node.op == "placeholder"}
        state = {}
        for spec in self._program.graph_signature.input_specs:
            node = nodes.get(name_of(spec))
            if node is None or not is_full(node.meta.get("val")):
                continue
            if spec.kind is InputKind.USER_INPUT:
                if self._half_ports:
                    self._set_dtype(node, self._dtype)
            elif spec.target in stored and not self._is_used_in_full(node):
                state[spec.target] = self._weight_casts.of(stored[spec.target])
                self._set_dtype(node, self._dtype)
        return state

    def _is_used_in_full(self, node: fx.Node) -> bool:
        return any(user.name in self._kept for user in node.users)

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:  # as its tuple
            node.meta = {**node.meta, "val": node.args[0].meta["val"][node.args[1]]}
            return
        operands = [self._calls.inside(value) for value in node.all_input_nodes]
        reads_full = any(_has_dtype(value, FULL) for value in operands)
        full = node.name in self._kept or (reads_full and not has_full_result(node))
        dtype, other = (FULL, self._dtype) if full else (self._dtype, FULL)

        def operand(value: fx.Node) -> fx.Node:
            value = self._calls.inside(value)
            return self._cast(value, dtype, node) if _has_dtype(value, other) else value

        node.args = fx.node.map_arg(node.args, operand)
        node.kwargs = fx.node.map_arg(node.kwargs, operand)
        if node.target is aten.native_group_norm.default:
            node.args = (self._contiguous(node), *node.args[1:])
        if dtype != FULL:
            node.args = without_full(node.args, dtype)
            node.kwargs = without_full(node.kwargs, dtype)
            self._set_dtype(node, dtype)

    def _contiguous(self, norm: fx.Node) -> fx.Node:
        """Return the contiguous input of a norm; `running` has the fault of torch."""
        options = {"memory_format": torch.contiguous_format}
        return Writer(norm).call(aten.clone.default, norm.args[0], **options)

    def _mark(self, mark: fx.Node) -> None:
        """Pass float arguments to an externalized module in the dtype that it computes in."""
        given = list(mark.args[0])
        tensors = [self._calls.inside(value) for value in given]
        if begins(mark):
            dtype = FULL if self._is_kept_in_full(mark) else self._dtype
            other = self._dtype if dtype == FULL else FULL
            tensors = [self._cast(v, dtype, mark) if _has_dtype(v, other) else v for v in tensors]
        call = self._calls.read(mark)
        if call is not None:
            call.replaced = dict(zip(given, tensors, strict=True))
        mark.args = (tensors, *mark.args[1:])

    def _is_kept_in_full(self, mark: fx.Node) -> bool:
        full = [n for n in nodes_of_call(mark) if _has_dtype(n, FULL)]
        return bool(full) and all(n.name in self._kept for n in full)

    def _cast(self, node: fx.Node, dtype: torch.dtype, user: fx.Node) -> fx.Node:
        """Return the value in another dtype; the cast is shared by later users.

        An externalized module has its own casts: another one would be one more argument.
        """
        key = (node, dtype, self._calls.innermost)
        if key not in self._casts:
            place = node.next if node.op != "placeholder" else self._first_call()
            write = Writer(user if self._has_marks else place, like=node)
            if node.name in self._masks:
                bound = mask_bound(dtype)
                self._casts[key] = write.cast(
                    write.call(aten.clamp.default, node, -bound, bound), dtype
                )
            else:
                self._casts[key] = write.cast(node, dtype)
        return self._casts[key]

    def _first_call(self) -> fx.Node:
        return next(node for node in self._graph.nodes if node.op != "placeholder")

    def _set_dtype(self, node: fx.Node, dtype: torch.dtype) -> None:
        node.meta = dict(node.meta)
        if "val" in node.meta:
            node.meta["val"] = fx.node.map_aggregate(
                node.meta["val"], lambda v: v.to(dtype) if is_full(v) else v
            )

    def _output(self, node: fx.Node) -> None:
        """Return states in their own dtype, and results in float32 unless asked."""
        results = list(node.args[0])
        targets = {n.name: n for n in self._graph.nodes if n.op == "placeholder"}
        by_fqn = {
            spec.target: targets[name_of(spec)]
            for spec in self._program.graph_signature.input_specs
            if name_of(spec) in targets
        }
        for index, spec in enumerate(self._program.graph_signature.output_specs):
            value = results[index]
            if not isinstance(value, fx.Node) or not isinstance(
                value.meta.get("val"), torch.Tensor
            ):
                continue
            state = by_fqn.get(spec.target) or targets.get(spec.target) if spec.target else None
            wanted = self._wanted(state, value)
            if wanted is not None and value.meta["val"].dtype in (FULL, self._dtype):
                results[index] = self._as_output(value, wanted, spec.arg.name, node)
        node.args = (tuple(results),)

    def _wanted(self, state: fx.Node | None, value: fx.Node) -> torch.dtype | None:
        """Return the dtype of an output; None if it stays as it is."""
        if state is not None and state.op == "placeholder" and "val" in state.meta:
            own = state.meta["val"].dtype
        else:
            own = self._dtype if self._half_ports else FULL
        return own if own != value.meta["val"].dtype else None

    def _as_output(self, value: fx.Node, dtype: torch.dtype, name: str, before: fx.Node) -> fx.Node:
        """Return an output in another dtype, under the name that the signature knows."""
        cast = Writer(before, like=value).cast(value, dtype)
        if value.name == name:
            value.name, cast.name = cast.name, value.name
        return cast


def _has_dtype(value: fx.Node, dtype: torch.dtype) -> bool:
    found = value.meta.get("val")
    return isinstance(found, torch.Tensor) and found.dtype == dtype


def without_full(value: Any, dtype: torch.dtype) -> Any:
    """Replace the argument `torch.float32` by the half dtype."""
    return fx.node.map_aggregate(value, lambda v: dtype if v is FULL else v)
