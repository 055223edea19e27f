"""The passes between capture and lowering, in order.

`recognize` rewrites an exported program when it is staged, because the converter reports what it
found before it converts. All other passes take a `PassGraph` and return one. They run on every
graph: that of an entry point, the branches and bodies of higher-order ops, and the functions that
are traced in the place of an op. An externalized region is a part of a graph whose dead code is
already gone; it gets the rest of the passes, with its own table of constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .dead_code import dead_code
from .externalize.find_regions import externalize
from .fillers import fillers
from .fold_constants import fold_constants
from .fuse_batch_norm import fuse_batch_norm
from .merge_writes import merge_writes
from .pass_graph import PassGraph
from .zero_size import zero_size

Pass: TypeAlias = Callable[[PassGraph], PassGraph]

REGION_PASSES: Sequence[Pass] = (fold_constants, fillers, fuse_batch_norm, zero_size)
GRAPH_PASSES: Sequence[Pass] = (externalize, dead_code, *REGION_PASSES, merge_writes)


def run(
    graph: PassGraph,
    passes: Sequence[Pass] = GRAPH_PASSES,
    observe: Callable[[str, PassGraph], None] | None = None,
) -> PassGraph:
    """Apply the passes in order; `observe` is called with the name and result of each."""
    for apply in passes:
        graph = apply(graph)
        if observe is not None:
            observe(apply.__name__, graph)
    return graph
