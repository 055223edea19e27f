"""What an exported graph holds for torch's sake alone, and what nothing asks for."""

from __future__ import annotations

import torch.fx as fx


def live_nodes(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that an output depends on.

    Assertions, range constraints and results that nobody reads compute nothing that a
    converted program returns; they are passed over, and the graph is left as it is.
    """
    live: set[fx.Node] = set()
    stack = [node for node in graph.nodes if node.op in ("output", "placeholder")]
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
    return live
