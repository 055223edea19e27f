"""Generated inputs stay in the domain of the given ones."""

from __future__ import annotations

import math

import pytest
import torch

from coreai_torch.capture.io_plan import Names, plan
from coreai_torch.verification.draws import TrialPlan, drawn, draws
from coreai_torch.verification.subject import Subject


class Takes(torch.nn.Module):
    def forward(self, x, ids, mask, *, scale=1.0):
        return x[ids] * scale + mask


X, IDS = torch.linspace(0, 1, 12).reshape(4, 3), torch.tensor([0, 3, 1])
MASK = torch.tensor([[0.0, -math.inf, 0.0]])


@pytest.fixture(scope="module")
def subject():
    shapes = {"x": {0: torch.export.Dim("n", min=4)}, "ids": {0: torch.export.Dim("k", max=9)}}
    program = torch.export.export(
        Takes(),
        (X, IDS, MASK),
        {"scale": 2.0},
        dynamic_shapes={**shapes, "mask": {}, "scale": None},
    )
    return Subject(program, plan(program, Names()), program.module())


def test_torch_accepts_every_draw(subject):
    given = subject.leaves(None, None)
    made = list(draws(subject, given, TrialPlan(seeds=2, sizes=3)))
    labels = [d.label for d in made]
    assert labels[0] == "given"
    edges = ["zeros", "extremes", "small", "large", "negative", "tiny", "infinite"]
    assert labels[-9:] == ["seed 1", "seed 2", *edges]
    assert len(labels) == 13
    assert labels[1].startswith("x[0]=4, ids[0]=")
    for draw in made:
        x, ids, mask, scale = draw.leaves(0)
        assert (x >= 0).all() or draw.label == "negative", "the given values are not negative"
        assert ((ids >= 0) & (ids <= 3)).all(), "indices stay in the given range"
        assert set(mask.flatten().tolist()) <= {0.0, -math.inf}
        assert scale == 2.0
        assert len(subject.calls(draw.leaves, 1)[0].outputs) == 1


def test_a_draw_is_reproducible_and_differs_between_calls(subject):
    given = subject.leaves(None, None)
    (draw,) = (d for d in draws(subject, given, TrialPlan()) if d.label == "seed 1")
    assert torch.equal(draw.leaves(0)[0], draw.leaves(0)[0])
    assert not torch.equal(draw.leaves(0)[0], draw.leaves(1)[0])


@pytest.mark.parametrize(
    "like",
    [
        torch.tensor([torch.nan, 1.0]),
        torch.tensor([torch.nan]),
        torch.tensor([torch.nan, torch.inf, 0.0]),
        torch.tensor([True, False]),
        torch.tensor([1, 5], dtype=torch.uint8),
        torch.tensor([1 + 2j, 3j]),
        torch.tensor([0.5, -0.5], dtype=torch.bfloat16),
        torch.zeros(0),
        torch.ones(3),
    ],
    ids=str,
)
def test_drawn_values_have_the_dtype_and_the_requested_shape(like):
    made = drawn(like, [4, 5], torch.Generator().manual_seed(0))
    assert (made.dtype, tuple(made.shape)) == (like.dtype, (4, 5))
    assert not made.isnan().any() if made.is_floating_point() else True


def test_magnitudes_signs_and_special_values(subject):
    made = {d.label: d for d in draws(subject, subject.leaves(None, None), TrialPlan())}
    small, large = (made[label].leaves(0)[0].abs().mean() for label in ("small", "large"))
    assert 1e5 < large / small < 1e7
    assert (made["negative"].leaves(0)[0] <= 0).all()
    assert made["infinite"].leaves(0)[0].isinf().any()
    assert made["tiny"].leaves(0)[0].abs().max() < 1e-30
    assert [d.label for d in made.values() if d.must_be_finite] == [
        "large",
        "negative",
        "tiny",
        "infinite",
    ]
