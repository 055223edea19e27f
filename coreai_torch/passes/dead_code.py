"""Drop the nodes that no result depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch.fx as fx

from ..fx.liveness import live_nodes
from .externalize.cut import Region, idle
from .pass_graph import PassGraph


def dead_code(graph: PassGraph) -> PassGraph:
    """Keep the calls that an output depends on, and one call for each region.

    A region that is needed needs everything that its declaration names. Sizes that regions alone
    read are dropped too, because each region computes them again.
    """
    every = [r for region in graph.regions for r in (region, *region.all_nested())]
    live = live_nodes(graph.module.graph, [(r.body, r.ends) for r in every])
    calls = [node for node in graph.calls if node in live]
    regions = [kept for region in graph.regions if (kept := region.kept(live))]
    unread = idle(calls, regions) if regions else set()
    calls = collapsed([node for node in calls if node not in unread], regions)
    return replace(graph, calls=calls, regions=regions)


def collapsed(calls: Sequence[fx.Node], regions: Sequence[Region]) -> list[fx.Node]:
    """Return the calls with the body of each region reduced to its last node."""
    hidden = {node for region in regions for node in list(region.body)[:-1]}
    return [node for node in calls if node not in hidden] if hidden else list(calls)
