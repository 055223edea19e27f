"""Find results that torch leaves undefined, so that generated inputs with them are not compared.

- A cast to an integer of infinities, NaN and numbers out of range: `torch.tensor(torch.inf).long()`
  gives the smallest integer, zero or another number, depending on the processor; the runtime gives
  the largest one.
- The order of a polynomial (`special_chebyshev_polynomial_t`), which torch casts to an integer.
- Rows behind the last offset of `_grouped_mm`: torch leaves them uninitialized.
- The factor of a matrix that is not positive definite: `linalg_cholesky_ex` stops at that row.
- The sign bit of NaN (`signbit`, `copysign`): `0 / 0` has it on x86-64, and not on ARM. Core AI has
  no op that reads it, and a program takes NaN as positive.
- Uninitialized memory that reaches a result: `torch.empty_like(p).scatter(0, p, values)` writes all
  elements only if `p` is a permutation. The graph runs with zeros and with ones there.
- Attention over fewer than 16 keys with infinite or NaN queries or keys: torch's CPU kernel returns
  zeros, and NaN over 16 keys or more (torch 2.13, x86-64).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..capture.feeding import feed
from ..numerics.rounding import overload
from ..torch_compat import pytree

_UNINITIALIZED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
_WIDEST = torch.int32  # of a program: 64 bits become 32
_VECTOR = 16  # the numbers of one vector instruction


def undefined_ops(program: torch.export.ExportedProgram, leaves: Sequence[Any]) -> tuple[str, ...]:
    """Return the ops whose results torch leaves undefined on these inputs."""
    uninitialized = _read_uninitialized(program, leaves)
    rules = {node: rule for node in program.graph.nodes if (rule := _rule_of(node)) is not None}
    if not rules:
        return uninitialized
    run = _Run(program.graph_module, rules)
    try:
        with torch.no_grad():
            run.run(*feed(program, leaves), enable_io_processing=False)
    except (RuntimeError, NotImplementedError):  # a custom op whose kernel runs elsewhere
        return uninitialized
    return (*run.found, *uninitialized)


def _read_uninitialized(
    program: torch.export.ExportedProgram, leaves: Sequence[Any]
) -> tuple[str, ...]:
    """Return the first op that leaves memory uninitialized, if a result depends on it."""
    nodes = [n for n in program.graph.nodes if _is_uninitialized(n)]
    if not nodes:
        return ()
    arguments = feed(program, leaves)
    try:
        with torch.no_grad():
            zeros, ones = (
                pytree.tree_leaves(
                    _Filled(program.graph_module, value).run(*arguments, enable_io_processing=False)
                )
                for value in (0, 1)
            )
    except (RuntimeError, NotImplementedError, IndexError):
        return ()
    same = (_are_equal(a, b) for a, b in zip(zeros, ones, strict=True))
    return () if all(same) else (str(nodes[0].target),)


def _is_uninitialized(node: fx.Node) -> bool:
    if node.op != "call_function" or overload(node.target)[0] not in _UNINITIALIZED:
        return False
    return any(overload(user.target)[0] != "fill" for user in node.users)


def _are_equal(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


class _Filled(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    """Runs a graph with one number in all uninitialized memory."""

    def __init__(self, module: fx.GraphModule, value: int) -> None:
        super().__init__(module)
        self._value = value

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; fill the memory that it leaves uninitialized."""
        result = super().run_node(n)
        return torch.full_like(result, self._value) if _is_uninitialized(n) else result


Rule = Callable[[fx.Node, Sequence[Any], Any], bool]  # node, arguments, result


def _rule_of(node: fx.Node) -> Rule | None:
    if node.op != "call_function":
        return None
    name = str(node.target)
    if "_polynomial_" in name:
        return _has_undefined_order
    for part, rule in _RULES:
        if part in name:
            return rule
    return _has_lost_nan if "scaled_dot_product" in name and _may_be_short(node) else None


def _may_be_short(attention: fx.Node) -> bool:
    """Return whether there may be fewer keys than a vector: others need no further run."""
    keys = attention.args[1].meta["val"].shape[-2]
    return not isinstance(keys, int) or keys < _VECTOR


def _is_undefined_cast(node: fx.Node, args: Sequence[Any], result: Any) -> bool:
    given = args[0]
    if not given.is_floating_point() or result.is_floating_point() or result.is_complex():
        return False
    return result.dtype != torch.bool and _is_out_of_range(given, result.dtype)


def _has_undefined_order(node: fx.Node, args: Sequence[Any], result: Any) -> bool:
    order = torch.as_tensor(args[1])
    return order.is_floating_point() and _is_out_of_range(order, torch.int64)


def _has_rows_left(node: fx.Node, args: Sequence[Any], result: Any) -> bool:
    offsets = args[2] if len(args) > 2 else node.kwargs.get("offs")
    if offsets is None or args[0].dim() != 2 or args[1].dim() != 3:
        return False
    steps = offsets.diff(prepend=offsets.new_zeros(1))
    return bool((steps < 0).any()) or int(offsets[-1]) != args[0].shape[0]


def _is_indefinite(node: fx.Node, args: Sequence[Any], result: Any) -> bool:
    return bool((result[1] != 0).any())


def _has_negative_nan(node: fx.Node, args: Sequence[Any], result: Any) -> bool:
    sign = args[-1]
    if not isinstance(sign, torch.Tensor) or not sign.is_floating_point():
        return False
    return bool((sign.isnan() & sign.signbit()).any())


def _has_lost_nan(node: fx.Node, args: Sequence[Any], result: Any) -> bool:
    query, key = args[:2]
    return key.shape[-2] < _VECTOR and not bool(
        torch.isfinite(query).all() and torch.isfinite(key).all()
    )


_RULES: tuple[tuple[str, Rule], ...] = (
    ("_to_copy", _is_undefined_cast),
    ("convert_element_type", _is_undefined_cast),
    ("_grouped_mm", _has_rows_left),
    ("linalg_cholesky_ex", _is_indefinite),
    ("signbit", _has_negative_nan),
    ("copysign", _has_negative_nan),
)


class _Run(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(self, module: fx.GraphModule, rules: dict[fx.Node, Rule]) -> None:
        super().__init__(module)
        self._rules, self.found = rules, dict[str, None]()  # an ordered set

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and apply its rule."""
        result = super().run_node(n)
        if n in self._rules and str(n.target) not in self.found:
            args, _ = self.fetch_args_kwargs_from_env(n)
            if self._rules[n](n, args, result):
                self.found[str(n.target)] = None
        return result


def _is_out_of_range(value: torch.Tensor, dtype: torch.dtype) -> bool:
    limits = torch.iinfo(dtype if dtype.itemsize < _WIDEST.itemsize else _WIDEST)
    wide = value.double()
    inside = (wide > limits.min - 1) & (wide < limits.max + 1)  # NaN is not inside
    return not bool(inside.all())
