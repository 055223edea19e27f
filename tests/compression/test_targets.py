"""Sensitivity tables, and schemes picked for a size or an error."""

import copy
import itertools
import json
import math

import pytest
import torch
from conversion import checked, saved_bytes
from torch import nn

from coreai_torch import compress, sensitivity
from coreai_torch.compression import Sensitivity
from coreai_torch.compression.picking import Option, _hull, pick
from coreai_torch.errors import ConversionError

WIDE = 96
SCHEMES = ("int8", "int4/32", "int2/32")


class Uneven(nn.Module):
    """Layers that change the output by very different amounts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDE, 4 * WIDE, bias=False) for _ in range(4))
        self.shares = [1.0, 0.3, 0.03, 0.001]

    def forward(self, x):
        return sum(share * layer(x) for share, layer in zip(self.shares, self.layers, strict=True))


def inputs(count=2):
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(8, WIDE, generator=draw),) for _ in range(count)]


def relative(model, plain):
    wrong = sum(float((model(*x) - plain(*x)).square().sum()) for x in inputs())
    return math.sqrt(wrong / sum(float(plain(*x).square().sum()) for x in inputs()))


def test_table_has_the_error_of_each_weight_alone():
    model = Uneven()
    before = copy.deepcopy(model.state_dict())
    table = sensitivity(model, inputs(), schemes=SCHEMES, skip="layers.3")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert len(table.rows) == 9
    alone = copy.deepcopy(model)
    report = compress(alone, "int4/32", only="layers.1")
    row = table.find("layers.1.weight", "int4/32")
    assert row.error == pytest.approx(relative(alone, model), rel=1e-3)
    assert row.bytes == report["layers.1.weight"].bytes
    assert row.weight_error == pytest.approx(report["layers.1.weight"].error)
    errors = [table.find(f"layers.{i}.weight", "int4/32").error for i in range(3)]
    assert errors == sorted(errors, reverse=True)
    assert "int4/32" in str(table)
    assert "layers.3.weight" in str(table)


def test_metric_replaces_inputs():
    model = Uneven()
    ((x,), _) = inputs()
    want = model(x).detach()

    def loss(one):
        return float((one(x) - want).square().mean()) + 5

    table = sensitivity(model, metric=loss, schemes=["int4/32"])
    assert table.additive
    alone = copy.deepcopy(model)
    compress(alone, "int4/32", only="layers.0")
    found = table.find("layers.0.weight", "int4/32").error
    assert found == pytest.approx(loss(alone) - 5, rel=1e-3)
    report = compress(model, SCHEMES, max_error=found / 2, metric=loss)
    assert 0 < report.error <= found / 2


def test_interrupted_measurement_resumes(tmp_path):
    path = tmp_path / "table.json"
    calls = []

    def loss(model):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return float(model(*inputs()[0]).square().mean())

    with pytest.raises(KeyboardInterrupt):
        sensitivity(Uneven(), metric=loss, schemes=SCHEMES, path=path)
    assert len(Sensitivity.load(path).rows) == 2
    calls[:] = [1] * 10
    table = sensitivity(Uneven(), metric=loss, schemes=SCHEMES, path=path)
    assert len(calls) == 10 + 1 + 10  # the model as it is, and the ten that were missing
    assert Sensitivity.load(path) == table
    sensitivity(Uneven(), metric=loss, schemes=SCHEMES, path=path)
    assert len(calls) == 22


def test_table_of_another_model_or_input_is_rejected(tmp_path):
    path = tmp_path / "table.json"
    model = Uneven()
    table = sensitivity(model, inputs(), schemes=["int8"], path=path)
    with pytest.raises(ConversionError, match="was measured with other inputs"):
        sensitivity(model, inputs(1), schemes=["int8"], path=path)
    model.layers[0].weight.data += 1
    with pytest.raises(ConversionError, match="was measured with another model"):
        compress(model, target_bytes=10**6, sensitivity=table)
    path.write_text(json.dumps({"version": 9}))
    with pytest.raises(ConversionError, match="is not a sensitivity table"):
        Sensitivity.load(path)


TOTAL = 4 * 4 * WIDE * WIDE * 4


@pytest.mark.parametrize("share", [0.45, 0.24])
def test_asset_respects_the_target(share):
    model, target = Uneven(), round(TOTAL * share)
    report = compress(model, SCHEMES, target_bytes=target, calibration=inputs())
    program = checked(model, *inputs()[0])
    assert 0.8 * target < saved_bytes(program) <= target
    assert report.error == pytest.approx(relative(model, Uneven()), rel=1e-3)
    bits = [row.bits for row in report.rows]
    assert bits == sorted(bits, reverse=True)  # the layers that matter more have more bits
    assert bits[0] > bits[-1]


@pytest.mark.parametrize("limit", [0.05, 0.003])
def test_error_respects_the_limit(limit):
    model = Uneven()
    report = compress(model, SCHEMES, max_error=limit, calibration=inputs())
    assert relative(model, Uneven()) <= limit
    assert report.error == pytest.approx(relative(model, Uneven()), rel=1e-3)
    assert report.bytes < report.bytes_before / 2
    program = checked(model, *inputs()[0])
    assert saved_bytes(program) < report.bytes + 9_000


def test_saved_table_needs_no_data(tmp_path):
    path = tmp_path / "table.json"
    sensitivity(Uneven(), inputs(), schemes=SCHEMES, path=path)
    report = compress(Uneven(), SCHEMES, target_bytes=TOTAL // 2, sensitivity=path, skip="layers.3")
    assert report["layers.3.weight"].scheme is None
    assert report["layers.2.weight"].scheme is not None
    assert report.bytes < TOTAL // 2
    assert report.error is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_bytes": 30_000, "calibration": inputs()}, "the target of .* cannot be reached"),
        ({"target_bytes": 10**6}, "the error of the model cannot be measured"),
        ({"max_error": 0.1, "target_bytes": 10**6}, "exclude each other"),
        ({"scheme": ["int8", "int4"]}, "nothing selects one of them"),
        ({"scheme": "int8", "metric": len}, "metric is not used"),
        ({"scheme": "int8", "sensitivity": "table.json"}, "sensitivity is not used"),
    ],
)
def test_wrong_arguments_raise(arguments, message):
    with pytest.raises(ConversionError, match=message):
        compress(Uneven(), **arguments)


def test_block_size_applies_to_candidates():
    report = compress(Uneven(), ["int4"], block_size=48, max_error=1.0, calibration=inputs())
    assert all(row.bits == 4 + 32 / 48 for row in report.rows)


def test_target_with_gptq():
    model = Uneven()
    report = compress(
        model, ["int4/32", "int8"], target_bytes=TOTAL // 3, calibration=inputs(), method="gptq"
    )
    nearest = compress(Uneven(), ["int4/32", "int8"], target_bytes=TOTAL // 3, calibration=inputs())
    assert report.bytes == nearest.bytes
    assert report.error < nearest.error


def _random_choices(seed):
    draw = torch.Generator().manual_seed(seed)
    found = {}
    for number in range(5):
        size = int(torch.randint(200, 2000, (), generator=draw))
        cost = float(torch.rand((), generator=draw)) + 0.01
        found[str(number)] = [
            Option(size, 0.0),
            *(
                Option(round(size * part), cost * noise)
                for part, noise in ((0.5, 0.01), (0.25, 0.2), (0.125, 1.0))
            ),
        ]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_pick_is_close_to_the_best_choice(seed):
    listed = _random_choices(seed)
    target = sum(options[0].bytes for options in listed.values()) // 3
    hull = {name: _hull(options) for name, options in listed.items()}
    found = pick(hull, target_bytes=target)
    assert sum(option.bytes for option in found.values()) <= target
    best = min(
        sum(option.cost for option in combination)
        for combination in itertools.product(*listed.values())
        if sum(option.bytes for option in combination) <= target
    )
    assert sum(option.cost for option in found.values()) <= 1.5 * best + 1e-9
    cost = sum(option.cost for option in found.values())
    within = pick(hull, max_cost=cost)
    assert sum(option.cost for option in within.values()) <= cost + 1e-12
