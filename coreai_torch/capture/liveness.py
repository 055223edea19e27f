"""What an exported graph holds for torch's sake alone, and what nothing asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch.fx as fx


def live_nodes(
    graph: fx.Graph, together: Sequence[tuple[Collection[fx.Node], Collection[fx.Node]]] = ()
) -> set[fx.Node]:
    """The nodes that an output depends on.

    Assertions, range constraints and results that nobody reads compute nothing that a
    converted program returns; they are passed over, and the graph is left as it is. Of each
    pair in `together`, a live node on the left makes all those on the right live.
    """
    live: set[fx.Node] = set()
    stack = [node for node in graph.nodes if node.op in ("output", "placeholder")]
    while stack:
        _reach(stack, live)
        stack = [
            node
            for some, ends in together
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
