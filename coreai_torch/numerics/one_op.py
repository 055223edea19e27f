"""Judge results of single nodes of a graph, or of one op on given arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx as fx

from ..ir.types import narrow
from ..torch_compat import OpOverload
from .compare import Allowed, as_accurate, compare
from .error_analysis import Analysis, Lanes, allowed_error, error_scale
from .float64 import run_in_float64
from .output_error import OutputError

Limits: TypeAlias = list[Allowed]


class GraphJudge:
    """Compares results of nodes of a graph, within the limits of the error analysis."""

    def __init__(self, module: fx.GraphModule, feed: Mapping[fx.Node, Any]) -> None:
        """Take a graph and the values of its placeholders."""
        self._module, self._feed = module, feed

    def allowed(self, want: Mapping[fx.Node, Sequence[torch.Tensor]]) -> dict[fx.Node, Limits]:
        """Return the limits of all results of these nodes; `want` has torch's results."""

        def limits(node: fx.Node, lanes: Lanes) -> Limits:
            return [allowed_of(p, w) for p, w in zip(_parts(lanes), want[node], strict=True)]

        return Analysis(self._module).run(self._feed, want, limits)

    def compare(
        self, node: fx.Node, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]
    ) -> list[OutputError]:
        """Compare all results of a node; float64 decides where torch itself is inaccurate."""
        limits = self.allowed({node: want})[node]
        return [
            compare(f"result {at}", g, w, self.widened_limit(node, at, g, w, limit))
            for at, (g, w, limit) in enumerate(zip(got, want, limits, strict=True))
        ]

    def widened_limit(
        self, node: fx.Node, at: int, got: torch.Tensor, want: torch.Tensor, limit: Allowed
    ) -> Allowed:
        """Return the limit, wider where torch is as far from the float64 result."""
        error = compare("", got, want, limit)
        exact = None if error.ok or error.problem else self._exact(node, at)
        if not isinstance(exact, torch.Tensor) or exact.shape != want.shape:
            return limit
        return as_accurate(got, want.to(narrow(want.dtype)), exact, limit)

    def _exact(self, node: fx.Node, at: int) -> Any:
        try:
            result = run_in_float64(self._module, self._feed, [node])[node]
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return None  # the op has no float64 kernel
        parts = result if isinstance(result, list | tuple) else [result]
        return [p for p in parts if p is not None][at]


class OneOp:
    """One call of an op as a graph that the error analysis runs."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(target, OpOverload):
            raise TypeError(f"{target} is not an op")
        graph = fx.Graph()
        feed: dict[fx.Node, Any] = {}

        def placed(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(placed(v) for v in value)
            if not isinstance(value, torch.Tensor):
                return value
            node = graph.placeholder(f"given_{len(feed)}")
            feed[node] = value
            return node

        arguments = tuple(placed(a) for a in args)
        named = {name: placed(value) for name, value in (kwargs or {}).items()}
        self._node = graph.call_function(target, arguments, named)
        graph.output(self._node)
        self._judge = GraphJudge(fx.GraphModule(torch.nn.Module(), graph), feed)

    def allowed(self, want: Sequence[torch.Tensor]) -> Limits:
        """Return the limits of all results that are tensors."""
        return self._judge.allowed({self._node: want})[self._node]

    def compare(
        self, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]
    ) -> list[OutputError]:
        """Compare all results; float64 decides where torch itself is inaccurate."""
        return self._judge.compare(self._node, got, want)


def _parts(lanes: Lanes) -> list[Lanes]:
    """Return the lanes of each result that is not None."""
    if not isinstance(lanes.base, list | tuple):
        return [lanes]
    return [
        Lanes(part, None if lanes.noisy is None else tuple(n[at] for n in lanes.noisy))
        for at, part in enumerate(lanes.base)
        if part is not None
    ]


def allowed_of(lanes: Lanes, want: torch.Tensor) -> Allowed:
    """Return the limits of one result from its noisy runs."""
    if not isinstance(lanes.base, torch.Tensor):
        return Allowed(torch.zeros(want.shape))
    scale = error_scale(lanes)
    error = allowed_error(scale, narrow(want.dtype)).cpu().expand(want.shape)
    if want.is_floating_point() or want.is_complex():
        return Allowed(error)
    return Allowed(error, (scale.scale > 0).cpu().expand(want.shape))
