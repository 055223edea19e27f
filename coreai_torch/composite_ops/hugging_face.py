"""The arithmetic of `transformers` in eager mode, which rounds each step to the model's dtype."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    sinks: Tensor | None,
    scale: float,
) -> Tensor:
    """Return the attention as `eager_attention_forward` of Llama computes it; sinks as gpt-oss.

    `mask` is boolean (True attends) or added to the logits. A hidden key gets the lowest finite
    logit, so a query without visible keys averages all values.
    """
    groups = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(groups, 1).mT * scale
    if mask is not None:
        logits = logits + _additive(mask, query.dtype)
    if sinks is None:
        weights = logits.softmax(-1, dtype=torch.float32).to(query.dtype)
    else:
        column = sinks.reshape(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
        joined = torch.cat((logits, column), -1)
        joined = joined - joined.amax(-1, keepdim=True)
        weights = joined.softmax(-1)[..., :-1].to(query.dtype)
    return weights @ value.repeat_interleave(groups, 1)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    lowest = torch.finfo(dtype).min
    return torch.where(mask, 0.0, lowest).to(dtype)
