"""Decide whether the values of paired operations agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from ..ir.types import narrow
from ..numerics.compare import compare
from ..numerics.one_op import GraphJudge
from ..numerics.tolerance import limits
from .graph import Key
from .inspector import Inputs, Inspector, TorchInspector, placeholders

# The values of source and target for each result.
Results: TypeAlias = Sequence[tuple[torch.Tensor, torch.Tensor]]
# Takes the results by the keys of source and target; returns by the source's key what agrees.
Judge: TypeAlias = Callable[[Mapping[tuple[Key, Key], Results]], dict[Key, bool]]


def judge_of(source: Inspector, target: Inspector, inputs: Inputs) -> Judge:
    """Return the judge of two programs: by error analysis if one of them is exported."""
    for place, inspector in enumerate((source, target)):
        if isinstance(inspector, TorchInspector):
            return _Analyzed(inspector, inputs, place)
    return _by_table


def _by_table(results: Mapping[tuple[Key, Key], Results]) -> dict[Key, bool]:
    allowed = limits()
    return {
        source: all(compare("", _like(b, a), a, allowed).ok for a, b in values)
        for (source, _), values in results.items()
    }


class _Analyzed:
    """The limits of the nodes of an exported program, which is the source (0) or target (1)."""

    def __init__(self, inspector: TorchInspector, inputs: Inputs, place: int) -> None:
        module = inspector.program.graph_module
        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._nodes = {n.name: n for n in module.graph.nodes}
        self._place = place
        feed = dict(zip(nodes, placeholders(inspector.program, inputs), strict=True))
        self._judge = GraphJudge(module, feed)

    def __call__(self, results: Mapping[tuple[Key, Key], Results]) -> dict[Key, bool]:
        want = {
            self._nodes[str(keys[self._place])]: [pair[self._place] for pair in values]
            for keys, values in results.items()
        }
        try:
            allowed: dict[Any, Any] = self._judge.allowed(want)
        except Exception:  # an op that torch cannot run on other operands
            return _by_table(results)
        passed = {}
        for keys, values in results.items():
            node = self._nodes[str(keys[self._place])]
            passed[keys[0]] = True
            for at, pair in enumerate(values):
                expected, found = pair[self._place], _like(pair[1 - self._place], pair[self._place])
                limit = allowed[node][at]
                limit = self._judge.widened_limit(node, at, found, expected, limit)
                passed[keys[0]] &= compare("", found, expected, limit).ok
        return passed


def _like(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the value in the dtype that the other has in a program."""
    return value.to(narrow(other.dtype))
