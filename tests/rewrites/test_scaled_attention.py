"""Long attention is scaled only as far as float16 allows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table, to_torch

KEYS = 4096


class Attention(nn.Module):
    """Probabilities along an axis of the scores, transposed or not, times values."""

    def __init__(self, axis: int = -1, *, transposed: bool = False) -> None:
        super().__init__()
        self.axis, self.transposed = axis, transposed

    def forward(self, scores, values):
        probabilities = scores.softmax(self.axis)
        return (probabilities.mT if self.transposed else probabilities) @ values


def rewritten(model, scores, values):
    exported = torch.export.export(model, (scores, values)).run_decompositions(get_decomp_table())
    converter = TorchConverter(target="neural_engine")
    return converter.add_exported_program(exported).to_coreai()


@pytest.fixture(scope="module")
def scores():
    torch.manual_seed(0)
    return torch.randn(2, 3, KEYS).half()


@pytest.fixture(scope="module")
def attention(scores):
    program = rewritten(Attention(), scores, torch.ones(2, KEYS, 2).half())
    assert [one.code for one in program.rewrites] == ["HAZ31"]
    module = to_torch(program)
    return lambda values: module({"scores": scores, "values": values})["matmul"]


# From the smallest subnormal number to the largest one; 512 is the limit of the scale.
@pytest.mark.parametrize(
    "largest", [6e-8, 1e-6, 1e-4, 1.0, 100.0, 511.0, 512.0, 600.0, 1024.0, 5000.0, 65504.0]
)
@pytest.mark.parametrize("constant", [False, True])
def test_values_of_every_size_keep_their_numbers(attention, scores, largest, constant):
    torch.manual_seed(1)
    values = torch.full((2, KEYS, 2), largest) if constant else torch.rand(2, KEYS, 2) * largest
    values[1] /= 3.0  # another scale in another matrix
    values = values.half()
    got, want = attention(values).double(), scores.double().softmax(-1) @ values.double()
    assert torch.isfinite(got).all()
    # Float16 has 11 bits, and steps of 2**-24 below 2**-14.
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2**-24)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_infinite_values_stay_where_they_are(attention, value):
    values = torch.ones(2, KEYS, 2).half()
    values[0, 5, 0] = value
    got = attention(values)
    assert torch.isfinite(got).logical_not().sum() == 3
    assert not torch.isfinite(got[0, :, 0]).any()


def test_softmax_along_another_axis_is_not_scaled():
    # Its probabilities add up to more than one along the keys: the product may overflow.
    scores, values = torch.randn(1, 8, KEYS).half(), torch.ones(1, KEYS, 2).half()
    assert rewritten(Attention(1), scores, values).rewrites == ()
    assert rewritten(Attention(-1, transposed=True), scores.mT, values).rewrites == ()
    assert len(rewritten(Attention(1, transposed=True), scores.mT, values).rewrites) == 1
