"""Warn of externalized modules that a model never calls: they become no graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch.fx as fx

from ...fx import marks
from .spec import Externalized

_SHOWN = 3  # modules in a warning


def called(module: fx.GraphModule, found: Sequence[Externalized]) -> list[Externalized]:
    """Return the modules whose calls are marked in a graph, branches included."""
    graphs = [inner.graph for inner in module.modules() if isinstance(inner, fx.GraphModule)]
    numbers = {marks.read(n)[0] for graph in graphs for n in graph.nodes if marks.is_mark(n)}
    return [found[number] for number in sorted(numbers)]


def warn(found: Sequence[Externalized], called: Sequence[Externalized]) -> None:
    """Warn of the modules that are not among the called ones."""
    idle = [match for match in found if match not in called]
    if not idle:
        return
    named = [f"{match.path!r} ({type(match.module).__name__})" for match in idle[:_SHOWN]]
    named += [f"{len(idle) - _SHOWN} more"] if len(idle) > _SHOWN else []
    warnings.warn(
        f"externalize_modules: the model never calls {', '.join(named)}, so that no graph is made "
        "for it\n  try   call the module itself: its forward, or a function that reads its "
        "weights, is not a call",
        UserWarning,
        stacklevel=4,
    )
