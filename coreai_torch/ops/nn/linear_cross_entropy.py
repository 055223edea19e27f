"""Lower linear_cross_entropy, which torch computes in chunks to save memory.

The chunks do not change the loss. Gradients computed along with the loss are rejected.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import decomposes


def _loss(
    x: Tensor,
    weights: Tensor,
    target: Tensor,
    bias: Tensor | None,
    class_weights: Tensor | None,
    **options: Any,
) -> Tensor:
    wide = [None if t is None else t.to(torch.float32) for t in (x, weights, bias, class_weights)]
    logits = torch.nn.functional.linear(*wide[:3])
    loss = torch.nn.functional.cross_entropy(logits, target, wide[3], **options)
    return loss.to(x.dtype)


@decomposes("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    *gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if any(gradients):
        raise ConversionError(
            "linear_cross_entropy: gradients along with the loss are not supported\n"
            "  try   export under torch.no_grad()"
        )
    loss = _loss(
        x,
        linear_weight,
        target,
        linear_bias,
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return loss, x.new_empty(0, 0), x.new_empty(0, 0), x.new_empty(0)


@decomposes("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_of_each(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    options = {"reduction": "none", "ignore_index": ignore_index}
    return _loss(x, linear_weight, target, linear_bias, weight, **options)
