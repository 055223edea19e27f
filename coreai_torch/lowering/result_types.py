"""Check what a lowering returns against the types of the exported graph."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ..errors import REPORT_HINT, WrongResultError, describe, target_name
from ..ir import types
from ..ir.dialect import Value, constant
from ..ir.shapes import with_static_sizes


def check_result_type(node: fx.Node, result: Any, hint: str = REPORT_HINT) -> Any:
    """Return the results of a lowering, refined to the types that the exported graph promises.

    Raises WrongResultError for another number of results, another dtype, rank or size.
    """
    promised = node.meta.get("val")
    if isinstance(promised, list | tuple):
        if not isinstance(result, list | tuple) or len(result) != len(promised):
            raise _wrong(node, f"{result!r}", f"{len(promised)} results", hint)
        return [_check_one(node, r, p, hint) for r, p in zip(result, promised, strict=True)]
    if result is None and isinstance(promised, torch.Tensor):  # else the next op gets the blame
        raise _wrong(node, "None", str(types.ranked(promised)), hint)
    return _check_one(node, result, promised, hint)


def _check_one(node: fx.Node, result: Any, promised: Any, hint: str) -> Any:
    if result is None or promised is None or isinstance(result, torch.Tensor):
        return result
    if isinstance(result, bool | int | float) and not isinstance(promised, torch.Tensor):
        return result
    type_ = types.ranked(promised)
    if isinstance(result, bool | int | float):
        result = constant(result, types.dtype_of(type_))
    if not isinstance(result, Value):
        raise _wrong(node, f"{result!r} ({type(result).__name__})", str(type_), hint)
    if result.type == type_:
        return result
    same = result.type.rank == type_.rank and result.type.element_type == type_.element_type
    if not same or any(_differ(a, b) for a, b in zip(result.type.shape, type_.shape, strict=True)):
        raise _wrong(node, str(result.type), str(type_), hint)
    if 0 in result.type.shape:  # the ops behind it are evaluated: `optimize()` fails at them
        return torch.empty(tuple(result.type.shape), dtype=types.dtype_of(type_))
    return with_static_sizes(result, type_)


def _differ(found: int, promised: int) -> bool:
    return found != promised and types.DYNAMIC not in (found, promised)


def _wrong(node: fx.Node, found: str, promised: str, hint: str) -> WrongResultError:
    problem = f"{target_name(node.target)} became {found}, but the graph promises {promised}"
    return WrongResultError(describe(node, problem, hint))
