"""Emit the body of a rotary embedding without slices and concatenations.

The runtime (coreai-core 1.0.0b3) takes 20 ns for each element of a `slice` and 40 ns for each of a
`concat`; a product with a 2 x 2 matrix takes 1 ns and is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...ir import dialect as cai
from ...ir.dialect import Value

_QUARTER_TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]])


def rotate(given: Mapping[str, Any]) -> Value | None:
    """Return `input * cos + turned * sin`; None unless all features have a cosine and a sine.

    `turned` contains each pair (a, b) of features as (-b, a).
    """
    x, tables, dims = given["input"], (given["cos"], given["sin"]), given["dims"]
    width = cai.size(x, x.type.rank - 1)
    if not isinstance(width, int) or width % 2 or (dims is not None and dims < width):
        return None
    if any(table.type.rank != x.type.rank or table.type.shape[-1] != width for table in tables):
        return None
    dtype = torch.promote_types(cai.dtype(x), torch.promote_types(*map(cai.dtype, tables)))
    turned = cai.cast(_turned(x, width // 2, given["interleaved"]), dtype)
    cos, sin = (cai.cast(table, dtype) for table in tables)
    rotated = cai.add(cai.mul(cai.cast(x, dtype), cos), cai.mul(turned, sin))
    return cai.cast(rotated, cai.dtype(x))


def _turned(x: Value, half: int, interleaved: bool) -> Value:
    sizes = list(cai.sizes(x))
    if interleaved:
        turn = cai.tensor_constant(_QUARTER_TURN.T.contiguous().to(cai.dtype(x)))
        return cai.reshape(cai.matmul(cai.reshape(x, [*sizes[:-1], half, 2]), turn), sizes)
    turn = cai.tensor_constant(_QUARTER_TURN.to(cai.dtype(x)))
    return cai.reshape(cai.matmul(turn, cai.reshape(x, [*sizes[:-1], 2, half])), sizes)
