"""Ops that read or write at positions given by a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..asset.reading import Op
from ..errors import UnsupportedOpError
from . import carriers
from .registry import Int, Result, Tensor, plans
from .shape import moves


def _nonnegative(indices: Tensor, size: int) -> Tensor:
    """Return the indices with negative ones counted from the end."""
    wide = indices.long()
    return torch.where(wide < 0, wide + size, wide)


def _check_bounds(indices: Tensor, sizes: Tensor) -> None:
    if bool(((indices < 0) | (indices >= sizes)).any()):
        raise IndexError(f"an index is out of bounds for sizes {sizes.reshape(-1).tolist()}")


@moves("gather_along_axis")
def _gather_along_axis(x: Tensor, indices: Tensor, axis: Int) -> Tensor:
    return torch.gather(x, axis, _nonnegative(indices, x.shape[axis]))


def _rows(x: Tensor, indices: Tensor) -> Tensor:
    """Return the flat index over the leading axes that each index vector addresses."""
    depth = indices.shape[-1]
    sizes = torch.tensor(x.shape[:depth], device=x.device)
    wide = indices.long()
    wide = torch.where(wide < 0, wide + sizes, wide)
    _check_bounds(wide, sizes)
    strides = [math.prod(x.shape[i + 1 : depth]) for i in range(depth)]
    return (wide * torch.tensor(strides, dtype=torch.int64, device=x.device)).sum(-1)


@moves("gather_nd")
def _gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    depth = indices.shape[-1]
    rows = _rows(x, indices)
    flat = x.reshape(math.prod(x.shape[:depth]), *x.shape[depth:])
    picked = flat.index_select(0, rows.reshape(-1))
    return picked.reshape(*indices.shape[:-1], *x.shape[depth:])


@plans("scatter_nd")
def _scatter_nd(op: Op) -> Callable[..., Result]:
    block = op.regions[0] if op.regions else None
    if block is not None and block.ops[-1].operands != block.arguments[1:2]:
        raise UnsupportedOpError(
            f"coreai.scatter_nd has a region that does not just yield the update\n"
            f"  at    {op.place or 'an unknown place'}"
        )

    def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        depth = indices.shape[-1]
        rows = _rows(x, indices).reshape(-1)
        made = x.clone(memory_format=torch.contiguous_format)
        flat = made.view(math.prod(x.shape[:depth]), -1)
        write_rows(flat, rows, updates.reshape(rows.numel(), -1))
        return made

    return carriers.moved(scatter_nd, op.types[0].dtype)


def write_rows(flat: Tensor, rows: Tensor, updates: Tensor) -> None:
    """Write the updates into rows of `flat`; of several for the same row the last one wins.

    numpy guarantees this order for duplicate indices, torch does not. On other devices each row
    takes the update with the highest number.
    """
    if flat.device.type == "cpu":
        _bare(flat)[rows.numpy()] = _bare(updates)
    else:
        write_last(flat, rows, updates)


def write_last(flat: Tensor, rows: Tensor, updates: Tensor) -> None:
    """Write the last update of each row, without numpy."""
    numbers = torch.arange(rows.numel(), device=rows.device)
    last = torch.full((flat.shape[0],), -1, dtype=torch.int64, device=rows.device)
    last = last.scatter_reduce(0, rows, numbers, "amax")
    is_last = last[rows] == numbers
    flat[rows[is_last]] = updates[is_last]


def _bare(x: Tensor) -> Any:
    """Return a numpy view of the tensor's memory; bfloat16 as its bits."""
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def _truncated_quotient(a: Any, b: Any) -> Any:
    quotient = abs(int(a)) // abs(int(b))
    return quotient if (a < 0) == (b < 0) else -quotient


_COMBINED: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}


def _combined(mode: str) -> Callable[..., Tensor]:
    def combined(made: Tensor, places: Tensor, updates: Tensor) -> Tensor:
        return torch.from_numpy(_combine(mode, made.numpy(), places.numpy(), updates.numpy()))

    return combined


def _combine(mode: str, made: Any, places: Any, updates: Any) -> Any:
    """Apply the updates to `made`; several at the same place all take effect."""
    if mode == "div" and not np.issubdtype(made.dtype, np.inexact):
        exact = made.astype(object)
        np.frompyfunc(_truncated_quotient, 2, 1).at(exact, places, updates.astype(object))
        return exact.astype(made.dtype)
    with np.errstate(all="ignore"):  # numpy warns about NaN and overflow
        _COMBINED[mode].at(made, places, updates)
    return made


@plans("scatter_along_axis")
def _scatter_along_axis(op: Op) -> Callable[..., Result]:
    mode = op.attributes["scatter_mode"]

    def scatter(x: Tensor, indices: Tensor, updates: Tensor, axis: Int) -> Tensor:
        axis = axis % x.dim()
        at = _nonnegative(indices, x.shape[axis])
        _check_bounds(at, torch.tensor(x.shape[axis], device=x.device))
        sizes = [n if i == axis else x.shape[i] for i, n in enumerate(x.shape)]
        grid = torch.arange(math.prod(sizes), device=x.device).reshape(sizes)
        stride = math.prod(x.shape[axis + 1 :])
        origin = grid.narrow(axis, 0, 1) if x.numel() else grid[:0].reshape(0)
        places = (origin + at * stride).reshape(-1)
        wide = x.float() if x.dtype == torch.bfloat16 and mode != "update" else x
        made = wide.clone(memory_format=torch.contiguous_format).view(-1)
        given = updates.to(wide.dtype).reshape(-1)
        if mode == "update":
            write_rows(made, places, given)
        else:
            made = carriers.on_host(_combined(mode))(made, places, given)
        return made.reshape(x.shape).to(x.dtype)

    if mode != "update" and op.types[0].dtype in carriers.WIDE_UNSIGNED:
        return scatter
    return carriers.moved(scatter, op.types[0].dtype)


@plans("non_zero")
def _non_zero(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def non_zero(x: Tensor) -> Tensor:
        if x.dtype in carriers.WIDE_UNSIGNED:
            x = x.to(torch.bool)
        if x.dtype in carriers.FLOAT8:
            x = x.float()
        return torch.nonzero(x).to(dtype)

    return non_zero
