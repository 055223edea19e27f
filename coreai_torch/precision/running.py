"""Run captured programs in torch, and record the range and the error of each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..capture.feeding import feed
from ..torch_compat import aten
from .defaults import op_name

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution")


@dataclass(frozen=True)
class Range:
    """The largest and the smallest nonzero magnitude of the values of a node."""

    largest: float
    smallest: float


class HalfKernelMissing(Exception):  # noqa: N818  caught within this package
    """Torch cannot run a node in half precision; `node` is its name."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


def run(
    program: torch.export.ExportedProgram, leaves: Sequence[Any], half: torch.dtype | None = None
) -> dict[str, tuple[torch.Tensor, ...]]:
    """Return the float inputs and results of every node, and of `output`, by name.

    With `half`, an error of torch in a node of that dtype raises `HalfKernelMissing`.
    """
    runner = _Runner(program.graph_module, half)
    with torch.no_grad():
        runner.run(*feed(program, leaves), enable_io_processing=False)
    return runner.found


class _Runner(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(self, module: fx.GraphModule, half: torch.dtype | None) -> None:
        super().__init__(module)
        self._half = half
        self.found: dict[str, tuple[torch.Tensor, ...]] = {}
        self.products: dict[str, int] = {}

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an op.

        `native_group_norm` of torch 2.13 fails on a transposed tensor, which the exporter took for
        a contiguous one: "Expected X.is_contiguous(memory_format) to be true".
        """
        if target is aten.native_group_norm.default:
            args = (args[0].contiguous(), *args[1:])
        return super().call_function(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """Run one node and keep its float results."""
        try:
            value = super().run_node(n)
        except (RuntimeError, NotImplementedError) as error:
            if self._half is None or n.op != "call_function":
                raise
            raise HalfKernelMissing(n.name) from error
        floats = tuple(v for v in _flat(value) if v.is_floating_point())
        if floats:
            self.found[n.name] = tuple(v.detach() for v in floats)
            if op_name(n).partition(".")[0] in _PRODUCTS:
                args, _ = self.fetch_args_kwargs_from_env(n)
                self.products[n.name] = _multiply_adds(n, args, value)
        return value


def _multiply_adds(node: fx.Node, args: Sequence[Any], result: torch.Tensor) -> int:
    """Return the number of products that a matrix product or a convolution adds up."""
    name = op_name(node).partition(".")[0]
    if name == "convolution":
        weight = args[1]
        return int(result.numel() * weight[0].numel())
    factor = args[1] if name in ("addmm", "baddbmm") else args[0]
    return int(result.numel() * factor.shape[-1])


def multiply_adds(program: torch.export.ExportedProgram, leaves: Sequence[Any]) -> dict[str, int]:
    """Return the multiply-adds of each matrix product and convolution."""
    runner = _Runner(program.graph_module, None)
    with torch.no_grad():
        runner.run(*feed(program, leaves), enable_io_processing=False)
    return runner.products


def _flat(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _flat(part)


def ranges(values: Mapping[str, tuple[torch.Tensor, ...]]) -> dict[str, Range]:
    """Return the range of each node."""
    return {name: _range(tensors) for name, tensors in values.items()}


def _range(tensors: tuple[torch.Tensor, ...]) -> Range:
    flat = torch.cat([t.abs().float().flatten() for t in tensors])
    flat = flat[torch.isfinite(flat) & (flat > 0)]  # infinite masks are not overflow
    return Range(float(flat.max()), float(flat.min())) if flat.numel() else Range(0.0, 0.0)


def error(expected: tuple[torch.Tensor, ...], actual: tuple[torch.Tensor, ...]) -> float:
    """Return the largest relative error of the results of a node, as a ratio of norms.

    A value that is finite in one and not in the other is an infinite error.
    """
    worst = 0.0
    for want, got in zip(expected, actual, strict=True):
        worst = max(worst, _tensor_error(want.double(), got.double()))
    return worst


def _tensor_error(want: torch.Tensor, got: torch.Tensor) -> float:
    finite = torch.isfinite(want)
    if not bool(torch.isfinite(got[finite]).all()):
        return float("inf")
    difference = torch.linalg.vector_norm((want - got)[finite])
    size = torch.linalg.vector_norm(want[finite])
    return float(difference / size) if size > 0 else float(difference)
