"""Ops that decompress weights: lookup tables, scales and offsets, bit masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..asset.reading import Op
from . import carriers
from .elementwise import limits, to_float4
from .registry import Int, Result, Tensor, implements, plans
from .shape import moves


@dataclass(frozen=True)
class Sparse:
    """A sparse tensor: the mask of stored elements, and the dense tensor with zeros."""

    mask: Tensor
    dense: Tensor


def _blocks(indices: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Return the number of the block of each position of `indices`."""
    number = torch.zeros([1] * indices.dim(), dtype=torch.int64, device=indices.device)
    for axis, count in enumerate(counts):
        size = indices.shape[axis]
        along = torch.arange(size, device=indices.device) // (size // count)
        number = number * count + along.reshape(
            [-1 if i == axis else 1 for i in range(len(counts))]
        )
    return number


@moves("lut_to_dense")
def _lut_to_dense(indices: Tensor, lut: Tensor, axis: Int) -> Tensor:
    *counts, palette, vector = lut.shape
    at = indices.long()
    if math.prod(counts) > 1:
        at = at + _blocks(indices, tuple(counts)) * palette
    picked = lut.reshape(-1, vector).index_select(0, at.reshape(-1))
    picked = picked.reshape(*indices.shape, vector)
    if vector == 1:
        return picked.squeeze(-1)
    axis = axis % indices.dim()
    return picked.movedim(-1, axis + 1).flatten(axis, axis + 1)


@implements("lut_to_sparse_with_bitmask")
def _lut_to_sparse(indices: Sparse, lut: Tensor, axis: Int) -> Sparse:
    unpack = carriers.moved(_lut_to_dense, lut.dtype)
    dense = unpack(indices.dense, lut, axis)
    mask = indices.mask.repeat_interleave(lut.shape[-1], axis)
    return _masked(mask, dense)


def _masked(mask: Tensor, dense: Result) -> Sparse:
    clear = carriers.moved(_zeroed, dense.dtype)
    return Sparse(mask, clear(dense, mask))


def _zeroed(dense: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, dense, torch.zeros((), dtype=dense.dtype, device=dense.device))


@implements("build_sparse_with_bitmask")
def _build_sparse(values: Tensor, bitmask: Tensor) -> Sparse:
    mask = bitmask.to(torch.bool)

    def placed(given: Tensor) -> Tensor:
        dense = torch.zeros(mask.shape, dtype=given.dtype, device=given.device)
        dense[mask] = given
        return dense

    return Sparse(mask, carriers.moved(placed, values.dtype)(values))


@implements("sparse_with_bitmask_to_dense")
def _sparse_to_dense(x: Sparse) -> Tensor:
    return x.dense


def _float(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _along(x: Tensor, axis: list[int], rank: int) -> Tensor:
    """Reshape values per channel so that they broadcast; a single value applies to all."""
    if x.dim() == 0 or x.numel() == 1:
        return x.reshape(())
    return x.reshape([-1 if i == axis[0] % rank else 1 for i in range(rank)])


def _axes(axis: Tensor) -> list[int]:
    return [int(a) for a in axis.reshape(-1).tolist()]


@plans("dequantize")
def _dequantize(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def dequantize(
        x: Tensor, scale: Tensor, offset1: Tensor, offset2: Tensor, axis: Tensor
    ) -> Tensor:
        along = _axes(axis)
        by, before, after = (_along(_float(p), along, x.dim()) for p in (scale, offset1, offset2))
        return ((_float(x) - before) * by + after).to(dtype)

    return dequantize


@plans("quantize")
def _quantize(op: Op) -> Callable[..., Result]:
    element, dtype = op.types[0].element, op.types[0].dtype

    def quantize(
        x: Tensor, scale: Tensor, offset1: Tensor, offset2: Tensor, axis: Tensor
    ) -> Tensor:
        along = _axes(axis)
        by, after, before = (_along(_float(p), along, x.dim()) for p in (scale, offset1, offset2))
        level = (_float(x) - before) / by
        if carriers.is_integer(dtype):
            return (level.round() + after).clamp(*limits(element, dtype)).to(dtype)
        if element == "f4E2M1FN":
            return to_float4(level + after)
        most = torch.finfo(dtype).max
        return (level + after).clamp(-most, most).to(dtype)

    return quantize


@plans("blockwise_shift_scale")
def _blockwise_shift_scale(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def restore(x: Tensor, scale: Tensor, offset1: Tensor, offset2: Tensor) -> Tensor:
        split = [n for d, b in zip(x.shape, scale.shape, strict=True) for n in (b, d // b)]
        by, before, after = (
            _float(p).reshape([n for b in p.shape for n in (b, 1)])
            for p in (scale, offset1, offset2)
        )
        made = (_float(x).reshape(split) - before) * by + after
        return made.reshape(x.shape).to(dtype)

    return restore
