"""Lower losses whose decompositions in torch differ from torch's kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32, i64
from ...torch_compat import aten, remove_autograd_decomposition

remove_autograd_decomposition(aten.multilabel_margin_loss_forward.default)

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
    """Count the labels up to the first -1 only.

    Torch's decomposition also counts later ones as 0.
    """
    scores, labels = torch.atleast_2d(self), torch.atleast_2d(target)
    count = scores.shape[1]
    position = torch.arange(count, device=target.device)
    end = torch.where(labels == -1, position, count).amin(-1, keepdim=True)
    is_label = position < end
    is_target = (position == torch.where(is_label, labels, -1).unsqueeze(-1)).any(1)
    label_scores = scores.gather(-1, torch.where(is_label, labels, 0))
    margin = 1.0 - label_scores.unsqueeze(-1) + scores.unsqueeze(1)
    margin = torch.where(margin > 0, margin, 0) / count  # torch ignores the NaN of inf - inf
    mask = is_label.unsqueeze(-1) & ~is_target.unsqueeze(1)
    losses = torch.where(mask, margin, 0).sum((-2, -1))
    if reduction == _MEAN:
        loss = losses.mean()
    elif reduction == _SUM:
        loss = losses.sum()
    else:
        loss = losses.reshape(self.shape[:-1])
    return loss, is_target.to(self.dtype).reshape(target.shape)
