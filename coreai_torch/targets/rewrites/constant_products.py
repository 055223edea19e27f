"""Resizing and running sums as products with constant matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.build import Build
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind, known
from ...ops._lib.constant_positions import multiply

_LARGEST = 1 << 24  # elements of a matrix
_SUM = 0  # the combiner of a scan


def nearest(op: Operation) -> Sequence[Value] | None:
    """Copy the nearest elements by one product for each axis."""
    return _resized(op, "nearest")


def linear(op: Operation) -> Sequence[Value] | None:
    """Mix neighbors by one product for each axis."""
    return _resized(op, "linear")


def _resized(op: Operation, mode: str) -> Sequence[Value] | None:
    """Replace `interpolate`; a product spreads an infinity or NaN along the axis."""
    if kind(op) != "interpolate" or mode not in str(op.attributes["interpolation_mode"]):
        return None
    x, shape, scales, offsets = op.operands
    result = op.results[0]
    tables = [known(value) for value in (shape, scales, offsets)]
    sizes = [*x.type.shape, *result.type.shape]
    if Build.current().exact or any(t is None for t in tables) or min(sizes, default=1) < 1:
        return None
    lines = [
        (axis, _matrix(x.type.shape[axis], int(size), float(scale), float(offset), mode))
        for axis, (size, scale, offset) in enumerate(zip(*tables, strict=True))
        if (int(size), float(scale), float(offset)) != (x.type.shape[axis], 1.0, 0.0)
    ]
    if any(matrix.numel() > _LARGEST for _, matrix in lines):
        return None
    for axis, matrix in reversed(lines):
        x = multiply(x, axis, matrix)
    return [x]


def _matrix(extent: int, size: int, scale: float, offset: float, mode: str) -> torch.Tensor:
    """Return the weights of the elements of an axis, one row for each result."""
    numbers = torch.arange(size, dtype=torch.float32)
    at = ((numbers + 0.5 - offset) / scale - 0.5).clamp(0, extent - 1).double()
    at = at if mode == "linear" else at.round()
    away = at[:, None] - torch.arange(extent, dtype=torch.float64)
    return (1 - away.abs()).clamp(min=0).float()


def running_sum(op: Operation) -> Sequence[Value] | None:
    """Multiply with a triangular matrix where the length is static."""
    if kind(op) != "scan" or op.attributes["scan_op"].value != _SUM:
        return None
    x, axis, backwards = op.operands
    at, back = known(axis), known(backwards)
    if Build.current().exact or at is None or back is None or not d.is_float(x):
        return None
    length = x.type.shape[int(at)]
    if not 0 < length * length <= _LARGEST:
        return None
    ones = torch.ones(length, length)
    return [multiply(x, int(at), ones.triu() if bool(back) else ones.tril())]
