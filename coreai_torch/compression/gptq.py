"""GPTQ: round a weight column by column and correct the remaining columns for each error.

The algorithm of https://arxiv.org/abs/2210.17323 with columns in the order of decreasing activation
and with scales that are fixed beforehand. It minimises the error of the layer's output on the
calibration data, which the sum of x^T x over its inputs describes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .palettes import nearest
from .schemes import Float8Scheme, IntegerScheme, Layout, PaletteScheme, Parts, Scheme

_DAMPING = 0.01  # of the mean of the diagonal
_COLUMNS = 128  # corrected at once

# Return the codes of one column, and their values.
Rounding = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def supports(scheme: Scheme, layout: Layout) -> bool:
    """Return whether GPTQ can round to the scheme."""
    if isinstance(scheme, PaletteScheme):
        return layout.block is None
    return isinstance(scheme, IntegerScheme | Float8Scheme)


def to_rows(value: Tensor, layout: Layout) -> Tensor:
    """Return a weight, or a tensor with one number per block, as a row per output."""
    return value.movedim(layout.channel, 0).flatten(1)


def _from_rows(rows: Tensor, layout: Layout) -> Tensor:
    shape = list(layout.shape)
    shape.insert(0, shape.pop(layout.channel))
    return rows.reshape(shape).movedim(0, layout.channel).contiguous()


def output_error(difference: Tensor, hessian: Tensor) -> float:
    """Return the squared error of the output on the calibration data."""
    return float(((difference @ hessian) * difference).sum(dtype=torch.float64))


def gptq(value: Tensor, hessian: Tensor, scheme: Scheme, layout: Layout, parts: Parts) -> Parts:
    """Return the parts with other codes, whose output error is lower."""
    rounding, name = _rounding(scheme, layout, parts)
    rows = to_rows(value.float(), layout).clone()
    order = hessian.diagonal().argsort(descending=True)
    factor = _inverse_factor(hessian[order][:, order])
    codes = torch.empty(rows.shape, dtype=parts[name].dtype)
    work = rows[:, order]
    for start in range(0, work.shape[1], _COLUMNS):
        end = min(start + _COLUMNS, work.shape[1])
        errors = torch.empty(work.shape[0], end - start)
        for at in range(start, end):
            column = int(order[at])
            codes[:, column], rounded = rounding(work[:, at], column)
            error = (work[:, at] - rounded) / factor[at, at]
            work[:, at:end] -= error[:, None] * factor[at, at:end]
            errors[:, at - start] = error
        work[:, end:] -= errors @ factor[start:end, end:]
    return {**parts, name: _from_rows(codes, layout)}


def _inverse_factor(hessian: Tensor) -> Tensor:
    """Return the upper Cholesky factor of the inverse; damp until it exists."""
    matrix = hessian.double()
    diagonal = matrix.diagonal()
    unused = diagonal == 0
    diagonal[unused] = 1.0
    damping = _DAMPING * float(diagonal[~unused].mean()) if bool((~unused).any()) else 1.0
    while True:
        damped = matrix + damping * torch.eye(len(matrix), dtype=torch.float64)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not int(failed):
            inverse = torch.cholesky_inverse(lower)
            factor, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if not int(failed):
                return factor.float()
        damping *= 10


def _rounding(scheme: Scheme, layout: Layout, parts: Parts) -> tuple[Rounding, str]:
    """Return the rounding of one column with fixed parameters, and the name of the codes."""
    if isinstance(scheme, PaletteScheme):
        table = parts["lut"].float().flatten()

        def look_up(column: Tensor, at: int) -> tuple[Tensor, Tensor]:
            indices = nearest(column, table)
            return indices, table[indices.long()]

        return look_up, "indices"
    scales = to_rows(parts["scale"].float(), layout)
    per_block = -(-to_rows(parts["data"], layout).shape[1] // scales.shape[1])
    if isinstance(scheme, IntegerScheme):
        zeros = torch.zeros_like(scales)
        if "zero_point" in parts:
            zeros = to_rows(parts["zero_point"].float(), layout)
        numbers = scheme.numbers

        def to_integers(column: Tensor, at: int) -> tuple[Tensor, Tensor]:
            scale, zero = scales[:, at // per_block], zeros[:, at // per_block]
            codes = (torch.round(column / scale) + zero).clamp_(numbers.low, numbers.high)
            return codes.to(numbers.container), (codes - zero) * scale

        return to_integers, "data"
    assert isinstance(scheme, Float8Scheme)
    most = torch.finfo(scheme.element).max
    element = scheme.element

    def to_floats(column: Tensor, at: int) -> tuple[Tensor, Tensor]:
        scale = scales[:, at // per_block]
        codes = (column / scale).clamp(-most, most).to(element)
        return codes, codes.float() * scale

    return to_floats, "data"
