"""Find writes to parts of a tensor that can be merged, such as `volume[:, i] = x` in a loop.

Functional code writes through a chain of views with one scatter for each view. This pass finds
scatters that write through views of the same tensor, and writes that follow each other. They are
lowered together, as concatenations of the written parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from ...torch_compat import aten
from ..pass_graph import PassGraph
from .emitting import MergedWrites, Span, Write

_SLICE, _SELECT, _COPY = aten.slice.Tensor, aten.select.int, aten.copy.default
_SCATTERS = {aten.slice_scatter.default: _SLICE, aten.select_scatter.default: _SELECT}
_DROPPED = {_SLICE, _SELECT, _COPY, *_SCATTERS}  # calls without effect, if nothing reads them


@dataclass(frozen=True)
class _Part:
    """The part of a tensor that a slice or select reads: a span for each axis."""

    base: fx.Node
    spans: tuple[Span, ...]


def merge_writes(graph: PassGraph) -> PassGraph:
    """Record the writes to lower together, and drop the calls that nothing reads any more."""
    scatters = [node for node in graph.calls if node.target in _SCATTERS]
    if len(scatters) < 2 or graph.regions:
        return graph
    writes: dict[fx.Node, Write] = {}
    known = {*graph.may_be_empty, *graph.replaced}
    for node in scatters:
        if not graph.is_custom(node) and node not in known:
            write = _merged(node, writes)
            if write is not None:
                writes[node] = write
    calls, users = _needed(graph, writes)
    merged = _chains([n for n in calls if n in writes], writes, users, _result_nodes(graph))
    if not merged:
        return graph
    inside = {node for chain in merged.values() for node in chain.nodes[:-1]}
    kept, _ = _needed(replace(graph, calls=[n for n in graph.calls if n not in inside]), {}, merged)
    return replace(graph, calls=kept, replaced={**graph.replaced, **merged})


def _merged(node: fx.Node, writes: Mapping[fx.Node, Write]) -> Write | None:
    """Return what a scatter writes; a scatter to the same view is part of the write."""
    part = _part(node, _SCATTERS[node.target], node.args[2:])
    source = node.args[1]
    if part is None or not isinstance(source, fx.Node) or node.kwargs:
        return None
    inner = writes.get(source)
    if inner is not None and _reads(inner.base, part):
        return Write(part.base, inner.source, _composed(part.spans, inner.spans))
    if source.target is _COPY and isinstance(source.args[1], fx.Node):
        source = source.args[1]
    return Write(part.base, source, part.spans)


def _reads(view: fx.Node, part: _Part) -> bool:
    return (
        view.target in (_SLICE, _SELECT)
        and not view.kwargs
        and _part(view, view.target, view.args[1:]) == part
    )


def _part(node: fx.Node, target: Any, given: Sequence[Any]) -> _Part | None:
    """Return the part that a slice or select of `node.args[0]` reads, if its bounds are known."""
    base = node.args[0]
    shape = _static_shape(base)
    if shape is None or not isinstance(base, fx.Node):
        return None
    numbers = [*given, *([0, None, None, 1][len(given) :] if target is _SLICE else [])]
    if not all(n is None or type(n) is int for n in numbers):
        return None
    axis = numbers[0] % len(shape) if shape else 0
    extent = shape[axis]
    spans = [Span(0, size) for size in shape]
    if target is _SELECT:
        spans[axis] = Span(numbers[1] % extent, 1, keep=False)
    else:
        start, end, step = slice(numbers[1], numbers[2]).indices(extent)[:2] + (numbers[3],)
        count = max(0, -(-(end - start) // step))
        if not count:
            return None
        spans[axis] = Span(start, count, step)
    return _Part(base, tuple(spans))


def _static_shape(node: Any) -> tuple[int, ...] | None:
    val = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(val, torch.Tensor) or not all(type(size) is int for size in val.shape):
        return None
    return tuple(val.shape) if val.numel() else None


def _composed(outer: Sequence[Span], inner: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans of a view's view; the inner one has the axes that the outer one keeps."""
    inside = iter(inner)
    return tuple(span.of(next(inside)) if span.keep else span for span in outer)


def _result_nodes(graph: PassGraph) -> set[fx.Node]:
    found: set[fx.Node] = set()
    fx.node.map_arg(graph.results, found.add)
    return found


def _needed(
    graph: PassGraph,
    writes: Mapping[fx.Node, Write],
    merged: Mapping[fx.Node, MergedWrites] | None = None,
) -> tuple[list[fx.Node], dict[fx.Node, set[fx.Node]]]:
    """Return the calls that something reads, and the calls that read each node."""
    results = _result_nodes(graph)
    users: dict[fx.Node, set[fx.Node]] = {}
    kept = []
    for node in reversed(graph.calls):
        if node.target in _DROPPED and node not in users and node not in results:
            continue
        kept.append(node)
        for read in _inputs(node, graph, writes, merged or {}):
            users.setdefault(read, set()).add(node)
    return kept[::-1], users


def _inputs(
    node: fx.Node,
    graph: PassGraph,
    writes: Mapping[fx.Node, Write],
    merged: Mapping[fx.Node, MergedWrites],
) -> Collection[fx.Node]:
    replaced = merged.get(node) or graph.replaced.get(node)
    if replaced is not None:
        return replaced.reads
    if node in writes:
        return [writes[node].base, writes[node].source]
    return list(node.all_input_nodes)


def _chains(
    nodes: Sequence[fx.Node],
    writes: Mapping[fx.Node, Write],
    users: Mapping[fx.Node, set[fx.Node]],
    results: Collection[fx.Node],
) -> dict[fx.Node, MergedWrites]:
    """Return the last node of each chain of writes; only the next write reads one before it."""
    chains: dict[fx.Node, MergedWrites] = {}
    for node in nodes:
        write = writes[node]
        before = chains.get(write.base)
        if before is not None and write.base not in results and users[write.base] == {node}:
            del chains[write.base]
            before.nodes.append(node)
            before.writes.append(write)
            chains[node] = before
        else:
            chains[node] = MergedWrites(write.base, [write], [node])
    return {node: chain for node, chain in chains.items() if _is_shorter(chain)}


def _is_shorter(chain: MergedWrites) -> bool:
    """Return whether the chain replaces more than one scatter."""
    (node, write), *more = zip(chain.nodes, chain.writes, strict=True)
    return bool(more) or (write.source is not node.args[1] and _is_scatter(node.args[1]))


def _is_scatter(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target in _SCATTERS
