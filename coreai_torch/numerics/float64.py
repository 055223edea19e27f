"""Run a graph or a model in float64: the reference where torch itself is inaccurate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx as fx

from ..torch_compat import TorchDispatchMode
from .noise import map_leaves
from .rounding import is_float


def run_in_float64(
    module: fx.GraphModule, feed: Mapping[fx.Node, Any], wanted: Iterable[fx.Node]
) -> dict[fx.Node, Any]:
    """Return the values of the wanted nodes; `feed` has the values of the placeholders."""
    run = _Wide(module, set(wanted))
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    with torch.no_grad():
        run.run(*(widened(feed[n]) for n in placeholders), enable_io_processing=False)
    return run.found


def widened(value: Any) -> Any:
    """Return floats in float64, complex numbers in complex128, and anything else as it is."""
    if is_float(value):
        return value.to(torch.complex128 if value.is_complex() else torch.float64)
    if isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex):
        return torch.complex128 if value.is_complex else torch.float64
    return value


class InFloat64(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """Run every op of a model on float64 operands, and cast to float64 where it casts to a float.

    A graph runs in `run_in_float64` instead: no mode reaches the branches of `torch.cond`.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if "_assert_tensor_metadata" in str(func):  # expects the dtypes of the model
            return None
        args, kwargs = map_leaves((tuple(args), dict(kwargs or {})), widened)
        return map_leaves(func(*args, **kwargs), widened)  # `torch.zeros(2)` is float32


class _Wide(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    """Runs every op in float64."""

    def __init__(self, module: fx.GraphModule, wanted: Iterable[fx.Node] = ()) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.found: dict[fx.Node, Any] = {}

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def run_node(self, n: fx.Node) -> Any:
        value = map_leaves(super().run_node(n), widened)
        if n in self._wanted:
            self.found[n] = value
        return value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = map_leaves((tuple(args), dict(kwargs)), _in_float64)
        return super().call_function(target, args, kwargs)


def _in_float64(value: Any) -> Any:
    return _Wide(value) if isinstance(value, fx.GraphModule) else widened(value)
