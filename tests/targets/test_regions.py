"""Rewrites for the neural engine join regions, and leave alone what they would change."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import coreai_torch
from coreai_torch.mlir import editing
from coreai_torch.targets.placing import RULES
from coreai_torch.targets.rewrites import REWRITES
from tests.rewrites.cases import converter

X = torch.sin(torch.arange(2 * 4 * 8 * 8.0)).reshape(2, 4, 8, 8).half()
KEYS = torch.sin(torch.arange(16500 * 4.0)).reshape(1, 1, 16500, 4).half()


class Between(nn.Module):
    """A function between two convolutions."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.first, self.last = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def _attend(x):
    query = x.reshape(2, 1, 64, 4)[:1]
    found = F.scaled_dot_product_attention(query, KEYS, KEYS)
    return torch.cat([found, query]).reshape(2, 4, 8, 8)


# By code: what is between two convolutions.
JOINED = {
    "PLACE01": lambda x: torch.where(x > 0, x, 0.5 * x + 0.25),
    "PLACE03": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "PLACE05": lambda x: x.cumsum(2),
    "PLACE08": _attend,
}


def converted(model, *inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return coreai_torch.convert(
            model.half().eval(), inputs, verify=False, target="neural_engine", **options
        )


@pytest.mark.parametrize("code", JOINED)
def test_a_rewrite_joins_three_regions(code):
    program = converted(Between(JOINED[code]), X)
    assert (program.regions.before, program.regions.after) == (3, 1)
    assert code in {one.code for one in program.rewrites}
    kept = converted(Between(JOINED[code]), X, skip_rewrites=[code])
    assert (kept.regions.before, kept.regions.after) == (3, 3)


def test_a_copy_of_the_nearest_element_joins_regions():
    lines = nn.Sequential(nn.Conv1d(4, 4, 1), nn.Upsample(scale_factor=2), nn.Conv1d(4, 4, 1))
    program = converted(lines, X[..., 0], converter=converter("PLACE02"))
    assert (program.regions.before, program.regions.after) == (3, 1)


def test_every_rewrite_of_placement_that_moves_ops_is_tested_here():
    leaves = {rule.code for rule in RULES if rule.effect == "leaves"}
    codes = {rewrite.code for rewrite in REWRITES if rewrite.code.startswith("PLACE")}
    assert codes & leaves == JOINED.keys() | {"PLACE02"}


def test_regions_are_counted_for_units_with_rules_only():
    for target in (None, "cpu", "any"):
        program = coreai_torch.convert(nn.ReLU(), (X.float(),), verify=False, target=target)
        assert program.regions is None
    program = coreai_torch.convert(nn.ReLU(), (X.float(),), verify=False, target="gpu")
    assert str(program.regions).startswith("gpu: 1 region, 1 without rewrites; an estimate")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > 0, x.log(), x),  # the logarithm is NaN where it is left out
        lambda x: torch.where(x > 0, x, float("-inf")),
        lambda x: torch.where(x.abs() > 0.5, 1 / x, x),
    ],
)
def test_a_selection_of_values_that_may_be_infinite_stays(function):
    program = converted(Between(function), X)
    assert "PLACE01" not in {one.code for one in program.rewrites}


def test_a_mask_that_hides_all_keys_stays():
    mask = torch.zeros(8, 8, dtype=torch.float16)
    mask[3] = float("-inf")
    program = converted(Between(lambda x: (x + mask).softmax(-1).nan_to_num(0.25)), X)
    assert "PLACE10" not in {one.code for one in program.rewrites}


def test_exact_programs_keep_infinities_apart():
    rows = Between(lambda x: F.interpolate(x.cumsum(2), scale_factor=2, mode="bilinear"))
    program = converted(rows, X, exact=True)
    assert not {"PLACE03", "PLACE05"} & {one.code for one in program.rewrites}


def test_attention_to_blocks_of_keys_in_half_precision():
    model = Between(_attend).half().eval()
    program = converted(model, X)
    (found,) = coreai_torch.to_torch(program)(X).values()
    torch.testing.assert_close(found, model(X), rtol=2e-3, atol=1e-3)


def test_layers_between_two_linear_layers_stay_in_their_layout():
    model = nn.Sequential(
        nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 4)
    )
    program = converted(model, X[0], extra_rewrites=["PLACE15"])
    (main,) = (op.operation for op in program.mlir_module.body.operations)
    kinds = [editing.kind(op) for op in editing.ops_of(main)]
    assert (kinds.count("conv2d"), kinds.count("transpose")) == (3, 2)
    assert "batch_matmul" not in kinds
    (found,) = coreai_torch.to_torch(program)(X[0]).values()
    torch.testing.assert_close(found, model(X[0]), rtol=2e-3, atol=1e-3)


def test_linear_layers_stay_products_unless_a_convolution_is_asked_for():
    program = converted(nn.Sequential(nn.Linear(8, 6)), X[0])
    assert program.rewrites == ()
