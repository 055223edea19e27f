"""Find the calls of the modules whose boundary is kept."""

from __future__ import annotations

from dataclasses import replace

from ..pass_graph import PassGraph
from .cut import regions


def externalize(graph: PassGraph) -> PassGraph:
    """Record the region of each call of an externalized module."""
    if not graph.externalized:
        return graph
    return replace(graph, regions=regions(graph.module.graph.nodes, graph.externalized))
