"""Run captured programs in torch, and record the range and the error of each node."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..capture.feeding import feed
from ..fx.marks import is_mark
from ..fx.programs import stored_tensors
from ..torch_compat import aten
from .defaults import is_choice
from .nodes import op_name
from .recast import FULL, WeightCasts, has_full_result, is_full, mask_bound, without_full

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


Values = dict[str, tuple[torch.Tensor, ...]]
Choices = dict[str, Any]  # the results of nodes that choose positions, as `topk`


@dataclass(frozen=True)
class HalfPrecision:
    """How to run a program: the nodes in `kept` in float32, the others in half precision."""

    kept: Collection[str]
    weights: WeightCasts
    choices: Choices = field(default_factory=dict)  # positions to use in place of those found
    masks: Collection[str] = ()  # nodes that are clamped before they are cast

    def weight(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        """Return a weight, in half precision unless a node reads it in float32."""
        if any(user.name in self.kept for user in node.users):
            return value.detach().clone()
        return self.weights.of(value).detach().clone()

    def arguments(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> tuple[Any, Any]:
        """Return the arguments in the dtype in which a node computes, as `recast` casts them."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.target is operator.getitem or is_mark(node):
            return args, kwargs
        half = self.weights.dtype
        reads_full = any(is_full(env[operand]) for operand in node.all_input_nodes)
        full = node.name in self.kept or (reads_full and not has_full_result(node))
        dtype, other = (FULL, half) if full else (half, FULL)

        def operand(given: fx.Node) -> Any:
            value = env[given]
            if not isinstance(value, torch.Tensor) or value.dtype != other:
                return value
            if given.name in self.masks and dtype == half:
                value = value.clamp(-mask_bound(half), mask_bound(half))
            return value.to(dtype)

        args, kwargs = fx.node.map_arg((node.args, node.kwargs), operand)
        return (args, kwargs) if dtype == FULL else without_full((args, kwargs), half)


def run(
    program: torch.export.ExportedProgram,
    leaves: Sequence[Any],
    half: HalfPrecision | None = None,
    *,
    only: Collection[str] = (),
) -> Values:
    """Return the float inputs and results of every node, and of `output`, by name.

    With `half`, the program runs as `recast` would rewrite it, and an error of torch in a node of
    that dtype raises `HalfKernelMissing`. `only` names the nodes whose results are needed.
    """
    return _ran(program, leaves, half, only).found


def run_with_choices(
    program: torch.export.ExportedProgram, leaves: Sequence[Any]
) -> tuple[Values, Choices]:
    """Run in float32; return the positions that nodes choose, too."""
    runner = _ran(program, leaves)
    return runner.found, runner.choices


def _ran(
    program: torch.export.ExportedProgram,
    leaves: Sequence[Any],
    half: HalfPrecision | None = None,
    only: Collection[str] = (),
) -> _Runner:
    runner = _Runner(program, half, only)
    with torch.no_grad():
        runner.run(*feed(program, leaves), enable_io_processing=False)
    return runner


class _Runner(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(
        self,
        program: torch.export.ExportedProgram,
        half: HalfPrecision | None = None,
        only: Collection[str] = (),
    ) -> None:
        super().__init__(program.graph_module)
        self._half, self._only = half, only
        self._stored = _stored(program) if half is not None else {}
        self.found: Values = {}
        self.choices: Choices = {}
        self.products: dict[str, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node and keep its float results."""
        if n.op == "call_function":
            value = self._called(n)
            if self._half is not None and n.name in self._half.choices:
                value = _chosen(value, self._half.choices[n.name])
            elif self._half is None and is_choice(n):
                self.choices[n.name] = value
        elif n.op == "placeholder" and self._half is not None and n.name in self._stored:
            value = self._half.weight(n, self._stored[n.name])
            next(self.args_iter)
        else:
            value = super().run_node(n)
        if not self._only or n.name in self._only:
            self._record(n, value)
        return value

    def _called(self, n: fx.Node) -> Any:
        if self._half is None:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
        else:
            args, kwargs = self._half.arguments(n, self.env)
        # native_group_norm of torch 2.13 fails on a transposed tensor, which the exporter took for
        # a contiguous one: "Expected X.is_contiguous(memory_format) to be true".
        if n.target is aten.native_group_norm.default:
            args = (args[0].contiguous(), *args[1:])
        try:
            result = self.call_function(n.target, args, kwargs)
        except (RuntimeError, NotImplementedError) as error:
            if self._half is None:
                raise
            raise HalfKernelMissing(n.name) from error
        return result if self._half is None else _with_nan(n, args, result)

    def _record(self, n: fx.Node, value: Any) -> None:
        if n.op == "call_function" and isinstance(value, tuple | list):
            return  # the elements that are used have their own nodes
        floats = tuple(v for v in _flat(value) if v.is_floating_point())
        if not floats:
            return
        self.found[n.name] = tuple(v.detach() for v in floats)
        if n.op == "call_function" and op_name(n).partition(".")[0] in _PRODUCTS:
            args, _ = self.fetch_args_kwargs_from_env(n)
            self.products[n.name] = _multiply_adds(n, args, value)


def _with_nan(node: fx.Node, args: Sequence[Any], result: Any) -> Any:
    """Return NaN for attention with infinite or NaN queries or keys.

    The CPU kernel of torch 2.13 returns zeros for them over fewer than 16 keys, so that queries
    that overflow look right.
    """
    if "scaled_dot_product" not in str(node.target):
        return result
    if all(bool(torch.isfinite(operand).all()) for operand in args[:2]):
        return result
    return fx.node.map_aggregate(
        result, lambda v: torch.full_like(v, torch.nan) if _is_float(v) else v
    )


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _chosen(value: Any, positions: Any) -> Any:
    """Return float results as computed, and integers as in another run."""
    if isinstance(value, tuple | list):
        return type(value)(_chosen(*pair) for pair in zip(value, positions, strict=True))
    return value if _is_float(value) else positions


def _stored(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the float32 parameters, buffers and constants by the names of their placeholders."""
    return {name: value for name, value in stored_tensors(program).items() if is_full(value)}


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
    return _ran(program, leaves).products


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
