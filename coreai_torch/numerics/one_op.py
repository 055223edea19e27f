"""The errors that the results of one op may have on given arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..ir.types import narrow
from ..torch_compat import OpOverload
from .compare import Allowed, as_accurate, compare
from .error_analysis import Analysis, Lanes, allowed_error, error_scale
from .float64 import run_in_float64
from .output_error import OutputError


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
        self._feed: dict[fx.Node, Any] = {}

        def placed(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(placed(v) for v in value)
            if not isinstance(value, torch.Tensor):
                return value
            node = graph.placeholder(f"given_{len(self._feed)}")
            self._feed[node] = value
            return node

        arguments = tuple(placed(a) for a in args)
        named = {name: placed(value) for name, value in (kwargs or {}).items()}
        self._node = graph.call_function(target, arguments, named)
        graph.output(self._node)
        self._module = fx.GraphModule(torch.nn.Module(), graph)

    def allowed(self, want: Sequence[torch.Tensor]) -> list[Allowed]:
        """Return the limits of all results that are tensors."""
        lanes = Analysis(self._module).run(self._feed, [self._node])[self._node]
        return [allowed_of(part, w) for part, w in zip(_parts(lanes), want, strict=True)]

    def compare(
        self, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]
    ) -> list[OutputError]:
        """Compare all results; float64 decides where torch itself is inaccurate."""
        found = []
        for at, (g, w, allowed) in enumerate(zip(got, want, self.allowed(want), strict=True)):
            error = compare(f"result {at}", g, w, allowed)
            exact = None if error.ok or error.problem else self._exact(at)
            if isinstance(exact, torch.Tensor) and exact.shape == w.shape:
                near = as_accurate(g, w.to(narrow(w.dtype)), exact, allowed)
                error = compare(error.name, g, w, near)
            found.append(error)
        return found

    def _exact(self, at: int) -> Any:
        try:
            result = run_in_float64(self._module, self._feed, [self._node])[self._node]
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return None  # the op has no float64 kernel
        parts = result if isinstance(result, list | tuple) else [result]
        return [p for p in parts if p is not None][at]


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
