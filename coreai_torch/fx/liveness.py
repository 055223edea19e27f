"""Find the nodes of an exported graph that its outputs depend on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch.fx as fx


def live_nodes(
    graph: fx.Graph, linked: Sequence[tuple[Collection[fx.Node], Collection[fx.Node]]] = ()
) -> set[fx.Node]:
    """Return the nodes that an output depends on; the graph is not changed.

    Assertions, range constraints and unused results are not among them. If a node on the left of
    a pair in `linked` is live, all nodes on the right are live.
    """
    live: set[fx.Node] = set()
    stack = [node for node in graph.nodes if node.op in ("output", "placeholder")]
    while stack:
        _reach(stack, live)
        stack = [
            node
            for some, ends in linked
            if not live.isdisjoint(some)
            for node in ends
            if node not in live
        ]
    return live


def _reach(stack: list[fx.Node], live: set[fx.Node]) -> None:
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
