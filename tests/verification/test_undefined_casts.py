"""Generated inputs that a model casts to integers out of range are not compared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import get_decomp_table
from coreai_torch.verification.undefined_casts import has_undefined_cast


class Whole(nn.Module):
    def forward(self, x):
        return x.long() * 2


def exported():
    return torch.export.export(Whole(), (torch.ones(2),)).run_decompositions(get_decomp_table())


@pytest.mark.parametrize(
    ("value", "undefined"),
    [(1.5, False), (-2147483648.0, False), (torch.inf, True), (torch.nan, True), (3e9, True)],
)
def test_casts_out_of_range_are_found(value, undefined):
    assert has_undefined_cast(exported(), [torch.tensor([1.0, value])]) is undefined


def test_model_with_a_cast_is_accepted():
    x = torch.tensor([1.5, -2.0, 0.25, 3.0])
    verdict = coreai_torch.verify(Whole(), coreai_torch.convert(Whole(), (x,)), (x,))
    assert verdict.ok
    assert any("infinite" in reason for reason in verdict.left_out)
