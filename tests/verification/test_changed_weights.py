"""A weight of a program that is not the model's is named."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import verify

X = torch.randn(2, 24, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))
        self.norm = nn.LayerNorm(24)
        self.other = nn.LayerNorm(24)  # with the same weights
        self.register_buffer("shift", torch.linspace(0, 1, 24))

    def forward(self, x):
        return self.norm(self.other(self.body(x))) + self.shift


def _verdict(change, tmp_path, *, optimize):
    model = Layers().eval()
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    program = coreai_torch.convert(other, (X,), verify=False)
    if optimize:
        program.optimize()
    program.save_asset(tmp_path / "other.aimodel")
    return verify(model, tmp_path / "other.aimodel", (X,))


def _weight(m):
    m.body[2].weight[3, :2] += 0.5


def _bias(m):
    m.body[0].bias[1] -= 0.25


def _scale(m):
    m.norm.weight[:3] *= 2


def _buffer(m):
    m.shift[5] = 9


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    ("change", "name", "module", "differ", "largest"),
    [
        (_weight, "body.2.weight", "body.2", 2, 0.5),
        (_bias, "body.0.bias", "body.0", 1, 0.25),
        (_scale, "norm.weight", "norm", 3, 1.0),
        (_buffer, "shift", "", 1, 9 - 5 / 23),
    ],
)
def test_changed_weight_is_named(tmp_path, change, name, module, differ, largest, optimize):
    verdict = _verdict(change, tmp_path, optimize=optimize)
    assert not verdict
    (found,) = verdict.weights
    assert (found.name, found.module, found.differ) == (name, module, differ)
    assert found.largest == pytest.approx(largest, rel=1e-6)
    assert found.op
    text = str(verdict)
    assert f"{name!r}" in text
    assert f"{differ} of {found.elements} elements differ, by at most" in text
    assert "first read by" in text
    assert verdict.as_dict()["weights"][0]["name"] == name


def test_several_weights_are_listed(tmp_path):
    def change(m):
        _weight(m)
        _bias(m)

    names = {w.name for w in _verdict(change, tmp_path, optimize=True).weights}
    assert names == {"body.2.weight", "body.0.bias"}


def test_wrong_op_is_not_blamed_on_a_weight(tmp_path):
    class Other(Layers):
        def forward(self, x):
            return self.norm(self.other(self.body(x).sigmoid())) + self.shift

    program = coreai_torch.convert(Other().eval(), (X,), verify=False)
    verdict = verify(Layers().eval(), program, (X,))
    assert not verdict
    assert verdict.weights == ()
