"""Results of a branch that do not depend on run-time values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx as fx

from ...passes.fold_constants import fold_constants
from ...passes.pass_graph import captured


def constant_results(branch: fx.GraphModule, operands: Sequence[Any]) -> dict[int, Any]:
    """Return the results that are the same at every run, by position."""
    graph = fold_constants(captured(branch, operands))
    return {
        place: graph.constants[result] if isinstance(result, fx.Node) else result
        for place, result in enumerate(graph.results)
        if not isinstance(result, fx.Node) or result in graph.constants
    }
