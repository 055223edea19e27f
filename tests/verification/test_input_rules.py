"""Inputs that have rules are drawn by them: read from the model, or given by the caller."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch.capture.io_plan import Names, plan
from coreai_torch.errors import VerificationInputError
from coreai_torch.verification import Subject, TrialPlan
from coreai_torch.verification.draws import draws
from coreai_torch.verification.input_rules import STRATEGIES

N = torch.export.Dim("n", min=2, max=64)
M = torch.export.Dim("m", min=3, max=64)


class Bag(nn.Module):
    def __init__(self, last=False):
        super().__init__()
        torch.manual_seed(0)
        self.bag = nn.EmbeddingBag(20, 4, mode="sum", include_last_offset=last)

    def forward(self, indices, offsets):
        return self.bag(indices, offsets)


class Buckets(nn.Module):
    def forward(self, x, bounds):
        return torch.bucketize(x, bounds), torch.searchsorted(bounds, x)


class Segments(nn.Module):
    def forward(self, data, lengths):
        return torch.segment_reduce(data, "sum", lengths=lengths, axis=0)


BAG = (torch.arange(8) % 20, torch.tensor([0, 3, 5]))
LAST = (torch.arange(8) % 20, torch.tensor([0, 3, 8]))


def drawn(model, args, shapes=None, **inputs):
    """Return the leaves of each draw by label, the given ones left out."""
    exported = torch.export.export(model.eval(), args, dynamic_shapes=shapes)
    program = exported.run_decompositions(coreai_torch.get_decomp_table())
    subject = Subject(program, plan(program, Names()), exported.module())
    given = subject.leaves(None, None)
    made = {d.label: d.leaves(0) for d in draws(subject, given, TrialPlan(inputs=inputs))}
    made.pop("given")
    return made


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_offsets_of_embedding_bags(last, dynamic):
    shapes = ({0: N}, {0: M}) if dynamic else None
    made = drawn(Bag(last), LAST if last else BAG, shapes)
    assert len(made) >= 4
    for indices, offsets in made.values():
        assert offsets[0] == 0
        assert (offsets.diff() >= 0).all()
        assert offsets[-1] <= len(indices)
        assert not last or offsets[-1] == len(indices)
    assert len({tuple(offsets.tolist()) for _, offsets in made.values()}) > 1


@pytest.mark.parametrize("last", [False, True])
def test_embedding_bags_are_tried_with_all_inputs(last):
    verdict = coreai_torch.verify(Bag(last).eval(), None, LAST if last else BAG)
    assert verdict, str(verdict)
    assert {"seed 1", "seed 2"} <= {trial.inputs for trial in verdict.trials}
    assert not [reason for reason in verdict.left_out if "torch itself rejects" in reason]


def test_bounds_are_sorted():
    bounds = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    for _, drawn_bounds in drawn(Buckets(), (torch.randn(5), bounds)).values():
        assert (drawn_bounds.diff() >= 0).all()


def test_lengths_of_segments_add_up():
    made = drawn(Segments(), (torch.randn(6, 2), torch.tensor([1, 2, 3])))
    for data, lengths in made.values():
        assert lengths.sum() == len(data)
        assert (lengths >= 0).all()


SHAPE = [3, 7]
INTEGERS = torch.arange(21).reshape(3, 7) % 7
CHECKS = {
    "offsets": (INTEGERS, lambda v: (v[:, 0] == 0).all() and (v.diff() >= 0).all()),
    "lengths": (INTEGERS, lambda v: ((v >= 0) & (v <= 6)).all()),
    "segment_ids": (INTEGERS, lambda v: (v.diff() >= 0).all() and v.min() >= 0 and v.max() <= 6),
    "mask": (INTEGERS > 2, lambda v: v[:, 0].all() and not v.all()),
    "probabilities": (
        torch.full((3, 7), 1 / 7),
        lambda v: ((v >= 0) & (v <= 1)).all() and torch.allclose(v.sum(-1), torch.ones(3)),
    ),
    "permutation": (INTEGERS, lambda v: (v.sort(-1).values == torch.arange(7)).all()),
    "angles": (torch.zeros(3, 7), lambda v: (v.abs() <= math.pi).all() and v.abs().max() > 1),
    "sorted": (torch.randn(3, 7), lambda v: (v.diff() >= 0).all()),
    "fixed": (INTEGERS, lambda v: torch.equal(v, INTEGERS)),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_keep_their_rule(name):
    given, holds = CHECKS[name]
    for seed in range(20):
        value = STRATEGIES[name](given, SHAPE, torch.Generator().manual_seed(seed))
        assert (value.dtype, list(value.shape)) == (given.dtype, SHAPE)
        assert holds(value)


class Permutes(nn.Module):
    def forward(self, x, order):
        return x[order]


def test_a_strategy_of_the_caller_is_used():
    x, order = torch.randn(5), torch.tensor([4, 2, 0, 1, 3])
    for _, chosen in drawn(Permutes(), (x, order), order="permutation").values():
        assert chosen.sort().values.tolist() == [0, 1, 2, 3, 4]

    def reversed_order(given, shape, generator):
        return torch.arange(shape[0]).flip(0)

    verdict = coreai_torch.verify(Permutes(), None, (x, order), inputs={"order": reversed_order})
    assert verdict, str(verdict)
    for _, chosen in drawn(Permutes(), (x, order), order=reversed_order).values():
        assert chosen.tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ordre": "permutation"}, r"no input is called 'ordre'\n  try   pass one of \['order'"),
        ({"order": "shuffled"}, "'order' is 'shuffled'\n  try   pass one of offsets, lengths"),
        ({"order": lambda g, s, r: g.float()}, r"returned torch\.float32\[5\]"),
    ],
)
def test_wrong_strategies_are_rejected(inputs, message):
    args = (torch.randn(5), torch.tensor([4, 2, 0, 1, 3]))
    with pytest.raises(VerificationInputError, match=message):
        coreai_torch.verify(Permutes(), None, args, inputs=inputs)
