"""`TorchConverter.blockers` returns everything that prevents a conversion, in one call."""

from __future__ import annotations

import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table


def blockers(model, *args, converter=None, **options):
    program = torch.export.export(model, args, **options).run_decompositions(get_decomp_table())
    return (converter or TorchConverter()).blockers(program)


@torch.library.custom_op("blockers_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clone(), x[0].clone()


@mystery.register_fake
def _(x):
    return torch.empty_like(x), torch.empty_like(x[0])


class Mystery(nn.Module):
    def forward(self, x):
        whole, part = mystery(x)
        return whole + part.sum()


class Mixed(nn.Module):
    """Ops without a lowering, rejected arguments, and ops that depend on both."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Mystery(), Mystery()
        self.norm = nn.BatchNorm1d(3)  # in training mode, which is rejected

    def forward(self, x):
        y = self.first(x) + self.second(x * 2)
        return torch.relu(self.norm(x + y)).cumsum(0)


def test_missing_ops_and_rejected_arguments_are_reported_together():
    missing, norm = blockers(Mixed().train(), torch.rand(3, 3))
    found = (missing.op, missing.count, missing.problem)
    assert found == ("blockers_tests.mystery.default", 2, "no lowering")
    assert [p.module for p in missing.places] == ["first", "second"]
    assert all("test_blockers.py" in p.source_line for p in missing.places)
    assert missing.places[0].result == "float32[3, 3], float32[3]"
    assert (norm.count, norm.code) == (1, "CAT103")
    assert "training mode" in norm.problem
    assert norm.hint == "call model.eval() before exporting"


def test_dynamic_sizes_do_not_stop_the_survey():
    rows = torch.export.Dim("rows", min=2)

    class Draws(nn.Module):
        def forward(self, x):
            return torch.bernoulli(x).sum(0) + torch.relu(x)

    (found,) = blockers(Draws(), torch.rand(3, 4), dynamic_shapes=({0: rows},))
    assert 'pass random="input" to convert' in found.hint


def test_training_ops_suggest_eval():
    class Trains(nn.Module):
        def forward(self, x):
            update = torch.ops.aten._batch_norm_with_update
            moved = update(x, x[0], x[0], x[0] * 0, x[0] * 0 + 1, 0.1, 1e-5)
            return nn.functional.dropout(moved[0], 0.5, training=True)

    found = {blocker.op: blocker.hint for blocker in blockers(Trains(), torch.rand(4, 3))}
    assert sorted(found) == [
        "aten._batch_norm_with_update_functional.default",
        "aten.native_dropout.default",
    ]
    assert all(hint.startswith("call model.eval() before exporting") for hint in found.values())


def test_blockers_inside_branches_are_found():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda a: mystery(a)[1] + 0, lambda a: a[0] * 2, (x,))

    (found,) = blockers(Branches(), torch.rand(3, 3))
    assert found.op == "blockers_tests.mystery.default"


def test_convertible_program_has_no_blockers_and_is_not_staged():
    converter = TorchConverter()
    assert blockers(nn.Linear(3, 3), torch.ones(2, 3), converter=converter) == []
    assert converter._staged == {}


def test_op_with_a_registered_lowering_is_not_a_blocker():
    converter = TorchConverter()

    @converter.register_torch_lowering("blockers_tests::mystery")
    def lowering(values_map, node, loc):
        raise NotImplementedError("asked for and not written")

    (found,) = blockers(Mystery(), torch.rand(3, 3), converter=converter)
    assert "NotImplementedError: asked for and not written" in found.problem
    assert found.hint == "fix the registered lowering"
