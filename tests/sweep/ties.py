"""Compare ops that return indices by the elements at these indices, since ties are arbitrary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .factors import INVARIANTS
from .modules import Call

# The position of `dim` among the arguments; its default is -1.
DIM = {"argsort": 1, "kthvalue": 2, "mode": 1, "sort": 1, "topk": 2}


def settled(name: str, call: Call, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Replace indices by their elements, and add whether the indices are valid and unique."""
    if name in INVARIANTS:
        return INVARIANTS[name](results)
    args, kwargs = pytree.tree_unflatten(list(call.leaves), call.spec)
    if name not in DIM or not args[0].dim() or kwargs.get("stable"):
        return list(results)
    dim = _argument(args, kwargs, DIM[name], "dim", -1)
    *values, places = results
    full = places if places.dim() == args[0].dim() else places.unsqueeze(dim)
    within = full.clamp(0, args[0].shape[dim] - 1)
    elements = args[0].detach().gather(dim, within.long())
    if name == "topk" and not _argument(args, kwargs, 4, "sorted", True):
        values, elements = [values[0].sort(dim).values], elements.sort(dim).values
    different = full.sort(dim).values.diff(dim=dim) > 0
    return [*values, elements, different.all() & (full == within).all()]


def _argument(args: Sequence[Any], kwargs: dict[str, Any], at: int, name: str, default: Any) -> Any:
    return args[at] if at < len(args) else kwargs.get(name, default)
