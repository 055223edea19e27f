"""Decomposition tables: torch's default table, changed by the lowerings and by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch

from ..errors import ArgumentTypeError
from ..torch_compat import OpOverload

Table = dict[Any, Callable[..., Any]]


def table(kept: Set[Any], rewrites: Mapping[Any, Callable[..., Any]]) -> Table:
    """Return torch's default table without the ops in `kept` and with the rewrites added.

    `kept` contains overloads, and names of ops from libraries that may not be installed.
    """
    default = dict(torch.export.default_decompositions().items())
    return {**without(default, kept), **rewrites}


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
