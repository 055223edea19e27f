"""The estimate of the unit that runs each op."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import coreai_torch
from coreai_torch.errors import ConversionError
from coreai_torch.targets import placement
from coreai_torch.targets.placing import RULES, placement_of
from coreai_torch.targets.placing.confusion import NO_RULE, confusion, described, joined
from coreai_torch.targets.placing.regions import divide
from tests.linting import made
from tests.linting.made import constant, op, tensor

X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).half()
KERNEL = torch.ones(4, 3, 3, 3).half()
SQUARE = torch.ones(2, 4, 4).half()


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Conv2d(3, 4, 1),
            nn.GroupNorm(2, 4),
            nn.Conv2d(4, 4, 1),
        )

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def converted(function, *inputs, **options):
    model = function if isinstance(function, nn.Module) else Call(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return coreai_torch.convert(model.eval(), inputs, verify=False, **options)


def codes(function, *inputs, target="neural_engine", **options):
    found = placement(converted(function, *inputs, **options), target)
    return {rule.code for op in found.ops for rule in (*op.rules, *op.notes)}


def masked(lowest):
    mask = torch.full((8, 8), lowest, dtype=torch.float16).triu(1)
    return lambda x: torch.softmax(x @ x.transpose(-1, -2) + mask, -1)


def loop(x):
    start = x.new_zeros((), dtype=torch.int32), x
    return torch.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), start)[1]


ROWS = torch.tensor([1, 0])

# By code of the rule: a model that matches and its inputs, and one that does not.
CASES = {
    "HAZ07": [(lambda x: (x[None, None] * 2, x)[0], X), (lambda x: x[None] * 2, X)],
    "HAZ51": [(lambda x: x.float().sin(), X), (lambda x: x.sin(), X)],
    "PLACE01": [(lambda x: torch.where(x > 0, x, -x), X), (lambda x: x.relu(), X)],
    "PLACE05": [(lambda x: x.cumsum(1), X), (lambda x: x.sum(1), X)],
    "PLACE06": [(Norm().half(), X), (nn.BatchNorm2d(3).half(), X)],
    "PLACE09": [(lambda x, y: x @ y @ x, SQUARE, SQUARE), (lambda x, y: x @ y, SQUARE, SQUARE)],
    "PLACE10": [(masked(float("-inf")), X), (masked(-4e4), X)],
    "PLACE11": [
        (lambda x: F.conv2d(x, KERNEL, stride=5), X),
        (lambda x: F.conv2d(x, KERNEL, stride=4), X),
    ],
    "PLACE12": [
        (lambda x: F.max_pool2d(x, 3, dilation=2), X),
        (lambda x: F.max_pool2d(x, 3), X),
    ],
    "PLACE13": [(F.silu, X), (F.relu, X)],
    "PLACE14": [(F.gelu, X), (lambda x: F.gelu(x, approximate="tanh"), X)],
    "PLACE15": [(nn.Linear(4, 5).half(), SQUARE), (nn.Conv2d(3, 4, 1).half(), X)],
    "HAZ08": [(loop, X), (lambda x: x * 2, X)],
    "HAZ15": [(lambda x: x.argmax(-1), X), (lambda x: x.amax(-1), X)],
    "HAZ52": [(lambda x, i: x[i], X, ROWS), (lambda x: x[:1], X)],
    "HAZ53": [(lambda x: x.sort(-1)[0], X), (lambda x: x.amax(-1), X)],
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_a_rule_finds_its_construct_and_no_other(code):
    (matching, *inputs), (clean, *others) = CASES[code]
    assert code in codes(matching, *inputs)
    assert code not in codes(clean, *others)


def test_dynamic_sizes_leave_the_neural_engine():
    rows = {0: torch.export.Dim("rows", min=2, max=9)}
    assert codes(torch.sin, X) == set()
    assert codes(torch.sin, X, dynamic_shapes=((rows,),)) == {"HAZ54"}


def hand_made(name, *types, constants=(), **attributes):
    """Return one op on inputs of these types, then constants."""
    listed = [constant(100 + n, type_, value=value) for n, (type_, value) in enumerate(constants)]
    operands = [*range(len(types)), *(one.results[0] for one in listed)]
    given = [*types, *(type_ for type_, _ in constants)]
    computed = op(name, operands, [200], [types[0]], given, **attributes)
    ports = [made.Port(f"x{n}", type_) for n, type_ in enumerate(types)]
    returned = op("output", [200], [], [], [types[0]])
    return made.program(made.function([*listed, computed, returned], ports))


WIDE = tensor("f16", 2, 70_000)
INDEX = tensor("si32", 1)
MADE = {
    "PLACE02": hand_made("interpolate", tensor("f16", 2, 8), interpolation_mode="nearest"),
    "PLACE03": hand_made("interpolate", tensor("f16", 2, 8), interpolation_mode="linear"),
    "HAZ35": hand_made("slice_update", tensor("f16", 8), INDEX, INDEX, tensor("f16", 2)),
    "PLACE04": hand_made("slice_update", tensor("f16", 8), tensor("f16", 2)),
    "PLACE07": hand_made("sin", WIDE),
    "PLACE08": hand_made("softmax", tensor("f16", 2, 16_400)),
    "HAZ09": hand_made("metal4_kernel", tensor("f16", 2, 8)),
    "HAZ54": hand_made("sin", tensor("f16", -1, 8)),
}


def compressed(name, weight, scale, decoder="blockwise_shift_scale", element="si4", strides=()):
    """Return a layer whose weight is decoded; `strides` are constants."""
    types = [tensor(element, *weight), tensor("f16", *scale)]
    stored = [constant(100 + n, type_) for n, type_ in enumerate(types)]
    decoded = op(decoder, [100, 101], [150], [tensor("f16", *weight)], types)
    steps = [
        constant(110 + n, tensor("ui32", 2), value=torch.tensor(v)) for n, v in enumerate(strides)
    ]
    operands = [0, 150, *(step.results[0] for step in steps)]
    given = [X_TYPE, tensor("f16", *weight), *(tensor("ui32", 2) for _ in strides)]
    layer = op(name, operands, [200], [X_TYPE], given)
    ops = [*stored, decoded, *steps, layer, op("output", [200], [], [], [X_TYPE])]
    return made.program(made.function(ops, [made.Port("x", X_TYPE)]))


X_TYPE = tensor("f16", 2, 4)
KERNEL_SIZES = (4, 4, 3, 3)
COMPRESSED = {
    "PLACE16": [
        compressed("batch_matmul", (4, 8), (4, 2)),
        compressed("batch_matmul", (4, 8), (4, 1)),
    ],
    "PLACE17": [
        compressed(
            "conv2d", (4, 4, 3, 3), (1, 1, 1, 1, 4), "lut_to_dense", strides=[[s, s], [1, 1]]
        )
        for s in (4, 2)
    ],
    "HAZ41": [
        compressed("conv2d", KERNEL_SIZES, axes, "lut_to_dense", strides=[[1, 1]])
        for axes in ((1, 1, 1, 1, 4, 2), (1, 1, 1, 1, 4))
    ],
}


@pytest.mark.parametrize("code", COMPRESSED)
def test_a_rule_finds_compressed_weights(code):
    matching, clean = (placement_of(one, "neural_engine") for one in COMPRESSED[code])
    for found, wanted in ((matching, True), (clean, False)):
        (only,) = found.ops
        assert (code in {rule.code for rule in (*only.rules, *only.notes)}) is wanted


def test_a_dilation_by_5_is_slow():
    kernel = torch.ones(4, 3, 1, 1).half()
    assert "PLACE11" in codes(lambda x: F.conv2d(x, KERNEL[..., :2, :2], dilation=5), X)
    assert "PLACE11" not in codes(lambda x: F.conv2d(x, kernel), X)


@pytest.mark.parametrize("code", MADE)
def test_a_rule_finds_ops_that_this_converter_does_not_emit(code):
    found = placement_of(MADE[code], "neural_engine")
    (only,) = found.ops
    assert code in {rule.code for rule in only.rules}
    assert only.unit != "neural_engine"


def test_every_rule_has_a_case():
    assert {rule.code for rule in RULES} == CASES.keys() | MADE.keys() | COMPRESSED.keys()


def test_a_norm_between_convolutions_makes_three_regions_and_its_move_saves_two():
    found = placement(converted(Norm().half(), X))
    assert found.regions == 3
    assert [run.unit for run in found.runs["main"]] == ["neural_engine", "gpu", "neural_engine"]
    size = 2 * 4 * 8 * 8 * 2  # float16 elements
    assert [(b.before, b.after, b.bytes) for b in found.borders] == [(0, 1, size), (1, 2, size)]
    (change,) = found.changes
    assert (change.saved, change.ops, change.first.name) == (2, 1, "group_norm")
    assert change.first.place == "module 'norm'"
    assert change.to_dict()["rules"][0]["source"]


def test_a_gpu_runs_what_the_neural_engine_does_not():
    found = placement(converted(Norm().half(), X), "gpu")
    assert (found.regions, set(found.units)) == (1, {"gpu"})


def test_parallel_branches_share_regions():
    # 0 -> 1 (gpu) -> 4, 0 -> 2 -> 3 (gpu) -> 4: the order 0, 2 | 1, 3 | 4 changes the unit twice
    units = ["ne", "gpu", "ne", "gpu", "ne"]
    runs = divide(units, [[1, 2], [4], [3], [4], []])
    assert [(run.unit, sorted(run.ops)) for run in runs] == [
        ("ne", [0, 2]),
        ("gpu", [1, 3]),
        ("ne", [4]),
    ]


def test_the_first_unit_is_the_one_that_needs_fewest_regions():
    runs = divide(["ne", "gpu", "ne"], [[2], [2], []])
    assert [run.unit for run in runs] == ["gpu", "ne"]


def test_nothing_to_run_has_no_regions():
    assert divide([], []) == []
    assert placement(converted(lambda x: x, X)).regions == 0


def test_an_unknown_target_is_rejected():
    with pytest.raises(ConversionError, match="target is 'tpu'"):
        placement(converted(torch.sin, X), "tpu")


def test_an_estimate_is_compared_with_a_plan():
    found = placement(converted(Norm().half(), X))
    ops = described(found.ops)
    norm = next(op["op_id"] for op in ops if op["op"] == "group_norm")
    others = [op["op_id"] for op in ops if op["op_id"] != norm]
    assert None not in (norm, *others)
    units = {number: {"neural_engine"} for number in others[1:]} | {norm: {"neural_engine"}}
    rows = {row.code: row for row in confusion(ops, units, "neural_engine")}
    assert (rows["PLACE06"].right, rows["PLACE06"].wrong) == (0, 1)
    assert (rows[NO_RULE].right, rows[NO_RULE].wrong) == (len(others) - 1, 0)
    assert rows[NO_RULE].units["unknown"] == 1
    both = {row.code: row for row in joined([rows.values(), rows.values()])}
    assert both["PLACE06"].to_dict()["wrong"] == 2
