"""Torch's decomposition table, less the ops that are lowered whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch


def table(
    whole: Set[Any], rewrites: Mapping[Any, Callable[..., Any]]
) -> dict[Any, Callable[..., Any]]:
    """A fresh table: torch's default, without what stays whole, with the rewrites laid over."""
    default = dict(torch.export.default_decompositions().items())
    names = {op for op in whole if isinstance(op, str)}  # of libraries that may not be there
    kept = {op: fn for op, fn in default.items() if op not in whole and op.name() not in names}
    return {**kept, **rewrites}
