"""Zero-size tensors that also have dynamic sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from module_runner import check

AUTO = torch.export.Dim.AUTO
SHAPES = ({0: AUTO, 1: AUTO},)


def _check(*functions):
    """Compare all functions in one program, exported at one size and run at two."""

    def together(x):
        return [function(x) for function in functions]

    check(together, (torch.randn(3, 4),), (torch.randn(6, 5),), dynamic_shapes=SHAPES)


def test_elementwise():
    """The runtime broadcasts a size of 0 to 1, or crashes on a comparison."""
    _check(
        lambda x: x[:, :0],
        lambda x: x[:, :0] + 1,
        lambda x: x[:, :0] > 0,
        lambda x: torch.where(x[:, :0] > 0, x[:, :0], 1.0).exp(),
        lambda x: x[:, :0].unsqueeze(0) * x.t().unsqueeze(2),
        lambda x: x.new_zeros(x.shape[0], 0, 0).int() % 3,
    )


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
def test_reductions():
    """The runtime does not write the result of a sum over no elements."""
    _check(
        lambda x: x[:, :0].sum(1),
        lambda x: x[:, :0].int().sum(1),
        lambda x: x[:, :0].prod(1, keepdim=True),
        lambda x: x[:, :0].mean(1),
        lambda x: x[:, :0].mean(),
        lambda x: x[:, :0].var(1),
        lambda x: x[:, :0].logsumexp(1),
        lambda x: (x[:, :0] > 0).all(1),
        lambda x: (x[:, :0] > 0).any(1),
        lambda x: torch.cat([x[:, :0], x[:, :0] + 1]).sum(1),
        lambda x: x[:, :0].softmax(1).sum(1),
        lambda x: torch.cdist(x[:, :0], x[:2, :0]),
    )


def test_products():
    _check(
        lambda x: x[:, :0] @ x[:0],
        lambda x: x[:, :0] @ x.new_zeros(0, 5),
        lambda x: torch.addmm(x, x[:, :0], x[:0]),
        lambda x: torch.baddbmm(x[None], x[None, :, :0], x[None, :0]),
        lambda x: F.linear(x[:, :0], x.new_zeros(5, 0), torch.arange(5.0)),
        lambda x: F.scaled_dot_product_attention(x[None], x[None, :0], x[None, :0]),
    )


def test_concatenation_padding_and_scatter():
    _check(
        lambda x: torch.cat([x[:, :0] * 2, x], 1),
        lambda x: F.pad(x[:, :0], (1, 2), value=3.0),
        lambda x: x.scatter(1, x[:, :0].long(), x[:, :0]),
        lambda x: x.index_add(1, torch.zeros(0, dtype=torch.int64), x[:, :0]),
        lambda x: x.slice_scatter(x[:, :0], 1, 2, 2),
        lambda x: x[:, :0].new_full((x.shape[0],), x.shape[0]),
    )
