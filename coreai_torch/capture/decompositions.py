"""Decomposition tables: torch's default table, changed by the lowerings and by the user."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch

from ..errors import ArgumentTypeError
from ..torch_compat import OpOverload, aten

Table = dict[Any, Callable[..., Any]]

# Ops whose decomposition in torch returns another dtype than the kernel if the operands have
# several: the kernel returns the common dtype of the arguments at these places.
_KERNEL_DTYPES: Mapping[Any, Sequence[int]] = {
    aten.binary_cross_entropy.default: (0,),
    aten.huber_loss.default: (0,),
    aten.mse_loss_backward.default: (1,),
    aten.smooth_l1_loss_backward.default: (1,),
    aten.soft_margin_loss.default: (0,),
    aten.soft_margin_loss_backward.default: (1,),
    aten.threshold_backward.default: (0, 1),
}


# Ops whose decomposition in torch casts half precision to float32 around all of its ops.
_CAST_TO_FLOAT32 = (
    aten.celu.default,
    aten.frac.default,
    aten.glu.default,
    aten.huber_loss.default,
    aten.log_sigmoid_forward.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
)


def table(kept: Set[Any], rewrites: Mapping[Any, Callable[..., Any]]) -> Table:
    """Return torch's default table without the ops in `kept` and with the rewrites added.

    `kept` contains overloads, and names of ops from libraries that may not be installed.
    """
    default = dict(torch.export.default_decompositions().items())
    for op, places in _KERNEL_DTYPES.items():
        if op in default:
            default[op] = _in_kernel_dtype(default[op], places)
    for op in _CAST_TO_FLOAT32:
        if op in default:
            default[op] = _in_half_precision(default[op])
    return {**without(default, kept), **rewrites}


def _in_half_precision(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decomposition that computes in half precision if all its operands have it."""
    plain = inspect.unwrap(fn)

    @functools.wraps(fn)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor)}
        is_half = dtypes in ({torch.float16}, {torch.bfloat16})
        return (plain if is_half else fn)(*args, **kwargs)

    return decomposed


def _in_kernel_dtype(fn: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """Cast the result of a decomposition to the common dtype of these positional arguments."""

    @functools.wraps(fn)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        given = [args[place] for place in places]
        dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in given])
        result = fn(*args, **kwargs)
        return result if result.dtype == dtype else result.to(dtype)

    return decomposed


def without(decompositions: Mapping[Any, Callable[..., Any]], kept: Set[Any]) -> Table:
    """Return the entries whose op is not in `kept`, by overload or by name."""
    names = {op for op in kept if isinstance(op, str)}
    return {
        op: fn for op, fn in decompositions.items() if op not in kept and op.name() not in names
    }


class OwnDecompositions:
    """The decompositions of one converter: functions to decompose ops with, and ops to keep."""

    def __init__(self, given: Mapping[Any, Callable[..., Any] | None] | None) -> None:
        """Check the entries; `None` as a function keeps the op."""
        if given is not None and not isinstance(given, Mapping):
            raise ArgumentTypeError(
                f"decompositions is {given!r}\n"
                "  try   pass a dictionary, as {torch.ops.aten.gelu.default: function}"
            )
        for op, fn in (given or {}).items():
            _check_entry(op, fn)
        entries = (given or {}).items()
        self.functions: Mapping[Any, Callable[..., Any]] = {
            op: fn for op, fn in entries if fn is not None
        }
        self.kept: Set[Any] = frozenset(op for op, fn in entries if fn is None)

    def apply(self, base: Mapping[Any, Callable[..., Any]]) -> Table:
        """Return the table with these decompositions added and the kept ops removed."""
        return {**without(base, self.kept), **self.functions}


def _check_entry(op: Any, fn: Any) -> None:
    if not isinstance(op, OpOverload):
        raise ArgumentTypeError(
            f"decompositions contains the key {op!r}, which is not an op overload\n"
            "  try   use an overload as the key, such as torch.ops.aten.gelu.default"
        )
    if fn is not None and not callable(fn):
        raise ArgumentTypeError(
            f"decompositions contains {fn!r} for {op}\n"
            "  try   pass a function of the op's arguments, or None to keep the op"
        )
