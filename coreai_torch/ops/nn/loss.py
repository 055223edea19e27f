"""Losses whose decompositions in torch give other numbers than torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32, i64
from ...torch_compat import aten

_MEAN, _SUM = 1, 2
_LABELS = i64(3, 4, values=(1, 0, -1, 3, 2, 2, -1, -1, -1, 0, 1, 2))


@decomposes(
    aten.multilabel_margin_loss_forward.default,
    cases=[
        case(f32(3, 4), _LABELS, 0),
        case(f32(3, 4), _LABELS, 1),
        case(f32(3, 4), _LABELS, 2),
        case(f32(3), i64(3, values=(2, -1, 0)), 1),
    ],
)
def multilabel_margin_loss_forward(
    self: Tensor, target: Tensor, reduction: int
) -> tuple[Tensor, Tensor]:
    """Torch's decomposition also counts the labels after the first -1, as if they were 0."""
    scores, labels = torch.atleast_2d(self), torch.atleast_2d(target)
    count = scores.shape[1]
    place = torch.arange(count, device=target.device)
    end = torch.where(labels == -1, place, count).amin(-1, keepdim=True)
    counts = place < end
    is_target = (place == torch.where(counts, labels, -1).unsqueeze(-1)).any(1)
    own = scores.gather(-1, torch.where(counts, labels, 0))
    margin = (1.0 - own.unsqueeze(-1) + scores.unsqueeze(1)).clamp_min(0) / count
    kept = counts.unsqueeze(-1) & ~is_target.unsqueeze(1)
    losses = torch.where(kept, margin, 0).sum((-2, -1))
    if reduction == _MEAN:
        loss = losses.mean()
    elif reduction == _SUM:
        loss = losses.sum()
    else:
        loss = losses.reshape(self.shape[:-1])
    return loss, is_target.to(self.dtype).reshape(target.shape)
