"""Activations as products with a sigmoid."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import dialect as d
from ...ir.dialect import Value
from ...mlir.editing import Operation, kind

# sqrt(8 / pi) and its product with 0.044715: 1 + tanh(u) is twice the sigmoid of 2u.
_LINEAR, _CUBIC = 1.5957691216, 0.0713548163


def silu(op: Operation) -> Sequence[Value] | None:
    """Multiply with the sigmoid."""
    if kind(op) != "silu":
        return None
    (x,) = op.operands
    return [d.mul(x, d.sigmoid(x))]


def gelu(op: Operation) -> Sequence[Value] | None:
    """Multiply float16 with the sigmoid of a polynomial, which is within 5e-4 of the exact form.

    Of float32 the exact form stays: no device with float32 computes it with tanh.
    """
    if kind(op) != "gelu" or "none" not in str(op.attributes["approximate"]):
        return None
    (x,) = op.operands
    if d.dtype(x) != torch.float16:
        return None
    slope = d.add(d.mul(d.mul(x, x), _CUBIC), _LINEAR)
    return [d.mul(x, d.sigmoid(d.mul(x, slope)))]
