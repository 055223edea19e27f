"""Cross entropy of a linear layer, which torch computes in chunks."""

from __future__ import annotations

import pytest
import torch
from module_runner import check, convert
from torch.nn import functional as F

from coreai_torch.errors import ConversionError

INPUT, WEIGHT, BIAS = torch.rand(6, 4), torch.rand(5, 4), torch.rand(5)
TARGET = torch.tensor([0, 3, -100, 4, 1, 3])


def _loss(reduction):
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=4, allow_retain_graph=True)

    def loss(x, weight, bias, target, class_weight):
        return F.linear_cross_entropy(
            x, weight, target, linear_bias=bias, weight=class_weight, reduction=reduction,
            options=options,
        )  # fmt: skip

    return loss


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_chunked_loss_equals_torch(reduction):
    check(_loss(reduction), (INPUT, WEIGHT, BIAS, TARGET, torch.rand(5)))


def test_gradients_with_the_loss_are_rejected():
    inputs = INPUT, WEIGHT.clone().requires_grad_(), BIAS, TARGET, torch.rand(5)
    with pytest.raises(ConversionError, match=r"gradients along with the loss[\s\S]*no_grad"):
        convert(_loss("sum"), inputs)
