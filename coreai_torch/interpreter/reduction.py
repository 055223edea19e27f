"""Ops along axes: reductions (which keep axes of size one), scans and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..asset.reading import Op
from . import carriers
from .registry import Flag, Int, Ints, Result, Tensor, implements, plans


def _sum(x: Tensor, axes: list[int]) -> Tensor:
    return x.sum(axes, keepdim=True, dtype=x.dtype)


def _product(x: Tensor, axes: list[int]) -> Tensor:
    for axis in axes:
        x = x.prod(axis, keepdim=True, dtype=x.dtype)
    return x


_REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "reduce_sum": (_sum, np.sum),
    "reduce_mean": (lambda x, axes: x.mean(axes, keepdim=True), None),
    "reduce_max": (lambda x, axes: x.amax(axes, keepdim=True), np.max),
    "reduce_min": (lambda x, axes: x.amin(axes, keepdim=True), np.min),
    "reduce_product": (_product, np.prod),
    "all": (lambda x, axes: torch.all(x, axes, keepdim=True), None),
    "any": (lambda x, axes: torch.any(x, axes, keepdim=True), None),
}


def _reduced(op: Op, native: Callable[..., Tensor], by_numpy: Any) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def unsigned(x: Tensor, axes: list[int]) -> Tensor:
        array = carriers.to_numpy(x)
        kwargs = {"dtype": array.dtype} if by_numpy in (np.sum, np.prod) else {}
        made = by_numpy(array, axis=tuple(axes), keepdims=True, **kwargs)
        return carriers.from_numpy(made, x.device)

    def eight_bits(x: Tensor, axes: list[int]) -> Tensor:
        return carriers.to_float8(native(x.float(), axes), dtype)

    chosen = native
    if dtype in carriers.WIDE_UNSIGNED:
        chosen = unsigned
    elif dtype in carriers.FLOAT8:
        chosen = eight_bits

    def reduce(x: Tensor, axes: Ints) -> Tensor:
        return chosen(x, axes) if axes else x  # torch takes an empty list as all axes

    return reduce


def _register(name: str, native: Callable[..., Tensor], by_numpy: Any) -> None:
    plans(name)(lambda op: _reduced(op, native, by_numpy))


for _name, _functions in _REDUCTIONS.items():
    _register(_name, *_functions)


@plans("softmax")
def _softmax(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def softmax(x: Tensor, axis: Int) -> Tensor:
        return torch.softmax(x, axis)

    def eight_bits(x: Tensor, axis: Int) -> Tensor:
        return carriers.to_float8(torch.softmax(x.float(), axis), dtype)

    return eight_bits if dtype in carriers.FLOAT8 else softmax


_SCANS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, axis: x.cumsum(axis, dtype=x.dtype),
    "product": lambda x, axis: x.cumprod(axis, dtype=x.dtype),
    "min": lambda x, axis: x.cummin(axis).values,
    "max": lambda x, axis: x.cummax(axis).values,
}
_UNSIGNED_SCANS = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _combiner(given: str | int) -> str:
    """Return the name of the combiner, which the op stores as a number."""
    return list(_SCANS)[given] if isinstance(given, int) else given


@plans("scan")
def _scan(op: Op) -> Callable[..., Result]:
    how, dtype = _combiner(op.attributes["scan_op"]), op.types[0].dtype

    def forward(x: Tensor, axis: int) -> Tensor:
        if dtype in carriers.WIDE_UNSIGNED:
            array = carriers.to_numpy(x)
            made = _UNSIGNED_SCANS[how].accumulate(array, axis, dtype=array.dtype)
            return carriers.from_numpy(made, x.device)
        if dtype in carriers.FLOAT8:
            return carriers.to_float8(_SCANS[how](x.float(), axis), dtype)
        return _SCANS[how](x, axis)

    flip = carriers.moved(lambda x, axis: x.flip(axis), dtype)

    def scan(x: Tensor, axis: Int, reverse: Flag) -> Result:
        return flip(forward(flip(x, axis), axis), axis) if reverse else forward(x, axis)

    return scan


@plans("argmax")
def _argmax(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def argmax(x: Tensor, axis: Int) -> Tensor:
        if x.dtype in carriers.WIDE_UNSIGNED:
            x = x.to(torch.float64) if x.dtype == torch.uint64 else x.to(torch.int64)
        if x.dtype in carriers.FLOAT8:
            x = x.float()
        if x.dtype.is_floating_point:  # the runtime skips NaN; torch would pick it
            x = torch.where(x.isnan(), -torch.inf, x)
        return torch.argmax(x, axis, keepdim=True).to(dtype)

    return argmax


def _order(x: Tensor, axis: int, descending: bool) -> Tensor:
    """Return the stable order; NaN comes last, also in descending order (unlike torch)."""
    if x.dtype in carriers.WIDE_UNSIGNED:
        array = carriers.to_numpy(x)
        order = np.argsort(~array if descending else array, axis=axis, kind="stable")
        return carriers.from_numpy(order, x.device)
    if x.dtype == torch.bool:  # CUDA does not sort it
        x = x.to(torch.uint8)
    if descending:
        x = -x if x.dtype.is_floating_point else ~x
    return torch.sort(x, dim=axis, stable=True).indices


@plans("argsort")
def _argsort(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype

    def argsort(x: Tensor, axis: Int, descending: Flag, stable: Flag) -> Tensor:
        return _order(x, axis, descending).to(dtype)

    return argsort


@implements("sort")
def _sort(x: Tensor, axis: Int, descending: Flag, stable: Flag) -> Result:
    gather = carriers.moved(torch.gather, x.dtype)
    return gather(x, axis, _order(x, axis, descending))


@plans("asymmetric_quantization_statistics")
def _asymmetric(op: Op) -> Callable[..., Result]:
    kind = op.types[1]

    def statistics(x: Tensor, bounds: Tensor, axis: Int) -> Result:
        low, high = (float(b) for b in bounds.float())
        greatest, least = (extreme.clamp(*at) for extreme, at in _extremes(x, axis))
        scale = (greatest - least) / (high - low)
        shift = least / scale
        if carriers.is_integer(kind.dtype):
            shift = torch.round(shift)
        return scale.to(x.dtype), (low - shift).clamp(low, high).to(kind.dtype)

    return statistics


def _extremes(x: Tensor, axis: int) -> list[tuple[Tensor, tuple[Any, Any]]]:
    """Return the largest and smallest value of each slice, each with the clamp to include 0."""
    slices = x.movedim(axis, 0).reshape(x.shape[axis], -1)
    slices = slices if x.dtype.is_floating_point else slices.double()
    return [(slices.amax(1), (0.0, None)), (slices.amin(1), (None, 0.0))]


@implements("symmetric_quantization_statistics")
def _symmetric(x: Tensor, bounds: Tensor, axis: Int) -> Tensor:
    low, high = (float(b) for b in bounds.float())
    (greatest, _), (least, _) = _extremes(x, axis)
    return (2 * torch.maximum(greatest.abs(), least.abs()) / (high - low)).to(x.dtype)
