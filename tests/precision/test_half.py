"""Half-precision programs equal the model in float32 within the limit, with few islands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import coreai_torch
from coreai_torch import errors, get_decomp_table
from coreai_torch.precision import to_half

pytestmark = pytest.mark.filterwarnings("ignore::coreai_torch.errors.CalibrationWarning")


class RootMeanSquare(nn.Module):
    """A norm that the model computes step by step."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    """A feed-forward block whose middle is scaled, as by large weights."""

    def __init__(self, size: int, scale: float) -> None:
        super().__init__()
        self.norm, self.scale = RootMeanSquare(size), scale
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))) * self.scale)


class Decoder(nn.Module):
    """Tokens with a table of positions, three blocks and scores."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Block(32, scale if i == 1 else 1.0) for i in range(3))
        self.norm, self.head = RootMeanSquare(32), nn.Linear(32, 50)

    def forward(self, ids):
        waves = torch.arange(ids.shape[1])[:, None] * torch.pow(1e4, -torch.arange(0, 32, 2) / 32)
        x = self.embed(ids) + torch.cat([waves.sin(), waves.cos()], -1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


IDS = torch.arange(16).reshape(2, 8)


def exported(model, *args, dynamic=None):
    program = torch.export.export(model.eval(), args, dynamic_shapes=dynamic)
    return program.run_decompositions(get_decomp_table())


def relative_error(program, half, *args):
    want, got = program.module()(*args), half.module()(*args)
    return float((want - got).norm() / want.norm())


def dtypes(program):
    return {tensor.dtype for tensor in program.state_dict.values()}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_ordinary_model_has_no_islands(precision):
    program = exported(Decoder(), IDS)
    half, report = to_half(program, [[IDS]], precision)
    assert report.islands == ()
    assert report.float32_share == 0
    assert dtypes(half) == {getattr(torch, precision)}
    assert relative_error(program, half, IDS) < report.limit


def test_overflowing_model_keeps_few_nodes_in_float32():
    program = exported(Decoder(3e5), IDS)
    half, report = to_half(program, [[IDS]])
    assert report.error_before == float("inf")
    assert report.error_after == pytest.approx(relative_error(program, half, IDS))
    assert relative_error(program, half, IDS) < report.limit
    assert 0 < len(report.islands) < 10
    assert any("overflow" in island.reason for island in report.islands)
    assert "overflow" in str(report)


def test_dynamic_sizes_stay_dynamic():
    sizes = {"ids": {1: torch.export.Dim("n", min=2, max=64)}}
    program = exported(Decoder(), IDS, dynamic=sizes)
    half, _ = to_half(program, [[IDS]])
    longer = torch.arange(40).reshape(2, 20)
    assert relative_error(program, half, longer) < 1e-2


def test_tables_and_norm_statistics_stay_in_float32():
    _, report = to_half(exported(Decoder(), IDS), [[IDS]])
    reasons = set(report.defaults.values())
    assert {"a table of positions", "statistics of a norm"} <= reasons


def test_positions_of_topk_stay_in_float32():
    model = exported(nn.Sequential(nn.Linear(8, 8), Top()), torch.ones(2, 8))
    _, report = to_half(model, [[torch.ones(2, 8)]])
    assert report.defaults["topk"] == "positions and indices"


class Ranked(nn.Module):
    """Return the rows with the largest scores, as a detector returns its queries."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x, rows):
        return rows[(x * self.scale + 1).topk(3).indices] * 2


def test_order_of_nearly_equal_scores_needs_no_islands():
    x, rows = torch.arange(6) * 1e-5, torch.randn(6, 4)  # all scores are 1 in float16
    _, report = to_half(exported(Ranked(), x, rows), [[x, rows]])
    assert report.islands == ()
    assert report.error_before < 1e-3


def test_scores_that_overflow_are_an_error():
    x, rows = torch.arange(6) * 1.0, torch.randn(6, 4)
    _, report = to_half(exported(Ranked(1e3), x * 30, rows), [[x * 30, rows]])
    assert report.islands


class Top(nn.Module):
    def forward(self, x):
        return x.topk(2)


def test_keep_matches_modules_and_ops():
    model = exported(
        nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4)), torch.ones(2, 8)
    )
    half, report = to_half(model, [[torch.ones(2, 8)]], keep=["2", "aten.sigmoid"])
    assert {island.op for island in report.islands} == {"linear.default", "sigmoid.default"}
    assert half.state_dict["0.weight"].dtype == torch.float16
    assert half.state_dict["2.weight"].dtype == torch.float32
    with pytest.raises(errors.ConversionError, match="nothing matches 'layers"):
        to_half(model, [[torch.ones(2, 8)]], keep=["layers.*"])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        self.count.add_(x)
        return self.count * 2


def test_states_become_half_precision_and_keep_counting():
    half, _ = to_half(exported(Counter(), torch.ones(4)), [[torch.ones(4)]])
    module = half.module()
    module(torch.ones(4))
    assert module(torch.ones(4)).tolist() == [4.0] * 4
    assert coreai_torch.convert(half)


def test_convert_verifies_and_reports_half_precision():
    program = coreai_torch.convert(Decoder(), (IDS,), precision="float16", calibration=[(IDS,)])
    assert program.precision_report.dtype == "float16"
    assert "f16" in str(program)


def test_half_ports_change_inputs_and_outputs():
    model, x = nn.Linear(8, 4), torch.ones(2, 8)
    program = coreai_torch.convert(model, (x,), precision="float16", half_ports=True)
    (function,) = coreai_torch.report.summarize(program).functions
    assert [port.dtype for port in (*function.inputs, *function.outputs)] == ["f16", "f16"]


class Accumulates(nn.Module):
    def forward(self, x, total):
        total.add_(x)
        return total * 2


def test_arguments_that_are_written_keep_float32():
    x, total = torch.ones(4), torch.zeros(4)
    program = coreai_torch.convert(Accumulates(), (x, total), precision="float16")
    (function,) = coreai_torch.report.summarize(program).functions
    assert [state.dtype for state in function.states] == ["f32"]


def test_overflow_that_keep_does_not_cover_is_rejected():
    program = exported(Decoder(3e5), IDS)
    with pytest.raises(errors.ConversionError, match="differs from float32 by inf"):
        to_half(program, [[IDS]], keep=["head"])


def test_missing_calibration_warns():
    with pytest.warns(errors.CalibrationWarning, match="CAT404"):
        coreai_torch.convert(
            nn.Linear(8, 4), (torch.ones(2, 8),), precision="float16", verify=False
        )


def test_calibration_by_name_finds_overflow():
    model, x = Squares(), torch.ones(2, 8)
    inputs = [{"x": x * 1000}]
    program = coreai_torch.convert(model, (x,), precision="float16", calibration=inputs)
    assert program.precision_report.islands


class Squares(nn.Module):
    def forward(self, x):
        return torch.log(x * x + 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int8"}, "precision is 'int8'"),
        ({"keep": ["0"]}, "keep has no effect without precision"),
        ({"half_ports": True}, "half_ports has no effect without precision"),
        ({"calibration": [(1,)]}, "calibration has no effect without precision"),
    ],
)
def test_wrong_options_are_rejected(options, message):
    with pytest.raises(errors.ConversionError, match=message):
        coreai_torch.convert(nn.Linear(8, 4), (torch.ones(2, 8),), verify=False, **options)


@pytest.mark.parametrize("keep", [None, 3, [nn.ReLU()]])
def test_keep_that_is_not_a_list_of_patterns_is_rejected(keep):
    with pytest.raises(errors.ArgumentTypeError, match="is not a list of patterns"):
        coreai_torch.convert(nn.ReLU(), (torch.ones(2, 8),), precision="float16", keep=keep)


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ([], "calibration is empty"),
        (torch.ones(1, 2, 8), "calibration is a Tensor, not a list"),
        ([(torch.ones(2, 9),)], r"is float32\[2, 9\], but the model takes float32\[2, 8\]"),
        ([(torch.ones(2, 8, dtype=torch.int32),)], r"is int32\[2, 8\], but the model takes"),
        ([{"y": torch.ones(2, 8)}], "no input is called 'y'"),
        ([(torch.full((2, 8), float("nan")),)], "returns no finite number for input 0"),
    ],
)
def test_wrong_calibration_is_rejected(calibration, message):
    options = {"precision": "float16", "calibration": calibration, "verify": False}
    with pytest.raises((errors.ConversionError, errors.ArgumentTypeError), match=message):
        coreai_torch.convert(nn.Linear(8, 4), (torch.ones(2, 8),), **options)


def test_command_line_converts_with_calibration_files(tmp_path, monkeypatch):
    from coreai_torch.cli.app import main

    monkeypatch.chdir(tmp_path)
    np.savez("typical.npz", input=np.ones((2, 8), np.float32))
    (tmp_path / "models.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Linear(8, 4)\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(
            ["convert", "models.py:net", "-i", "input=f32[2,8]", "--precision", "float16"]
            + ["--calibration", "typical.npz", "-o", "net.aimodel"]
        )
    assert stop.value.code == 0
    assert (tmp_path / "net.aimodel").is_dir()


class Attention(nn.Module):
    """Attention over four keys, with queries that overflow float16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query = nn.Linear(8, 8)

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query(x) * 1e6, x, x)


def test_attention_with_queries_that_overflow_is_an_error():
    x = torch.randn(1, 2, 4, 8)  # torch returns zeros for NaN queries over fewer than 16 keys
    half, report = to_half(exported(Attention(), x), [[x]])
    assert report.error_before == float("inf")
    assert "mul" in {island.node for island in report.islands}
    assert relative_error(exported(Attention(), x), half, x) < report.limit


class Detections(nn.Module):
    """Boxes of 640 pixels, and scores with an exponential that underflows, in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.boxes, self.scores = nn.Linear(16, 4), nn.Linear(16, 3)

    def forward(self, x):
        scores = torch.exp(self.scores(x) * 1e-3 - 16) * 5e6
        return torch.cat([self.boxes(x).sigmoid() * 640, scores], -1).transpose(0, 1)


def test_parts_of_a_concatenated_output_are_judged():
    x = torch.randn(10, 16)
    program = exported(Detections(), x)
    half, report = to_half(program, [[x]])
    assert report.error_before > report.limit
    want, got = program.module()(x)[4:], half.module()(x)[4:]
    assert float((want - got).norm() / want.norm()) < report.limit


class Pixels(nn.Module):
    """Integers and bools made from numbers that overflow float16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        large = self.layer(x) * 1e6
        return large.round().to(torch.int32), large > 1e5, large.double() * 2


@pytest.mark.parametrize("keep", ["auto", ["aten.mul", "aten.round"]])
def test_integers_and_comparisons_read_float32(keep):
    x = torch.randn(10, 16)
    program = exported(Pixels(), x)
    half, report = to_half(program, [[x]], keep=keep)
    assert report.islands
    integers, bools, doubles = half.module()(x)
    wanted = program.module()(x)
    assert (integers - wanted[0]).abs().max() < 1e-3 * wanted[0].abs().max()
    assert (bools == wanted[1]).float().mean() > 0.95
    assert torch.allclose(doubles, wanted[2], rtol=1e-2, atol=2e3)


class Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.sigmoid(x) * self.factor


@pytest.mark.parametrize(("scale", "factor"), [(1e6, 1.0), (1.0, 1e6), (1e-8, 1.0), (1.0, 1e-8)])
def test_half_ports_reject_numbers_that_they_cannot_have(scale, factor):
    x = torch.rand(4) * scale
    with pytest.raises(errors.ConversionError, match=r"(in|out)put '\w+' has values up to"):
        to_half(exported(Scaled(factor), x), [[x]], half_ports=True)
    _, report = to_half(exported(Scaled(factor), x), [[x]])
    assert report.error_after < report.limit


def test_report_names_the_op_instead_of_its_result():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    model[0].weight.data *= 1e6
    x = torch.randn(4, 8)
    _, report = to_half(exported(model, x), [[x]])
    assert {island.op for island in report.islands} == {
        "linear.default",
        "native_layer_norm.default",
    }


class Masked(nn.Module):
    """Causal attention, step by step, with a padding mask; `low` is the score of hidden keys."""

    def __init__(self, low: float, *, stored: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.low, self.stored, self.layer = low, stored, nn.Linear(16, 48)
        self.register_buffer("bias", torch.full((6, 6), low).triu(1))

    def forward(self, x, mask):
        q, k, v = self.layer(x).chunk(3, -1)
        seen = torch.ones(6, 6, dtype=torch.bool).tril() & (mask[:, None, :] > 0)
        bias = self.bias if self.stored else torch.where(seen, 0.0, self.low)
        return x + (q @ k.transpose(1, 2) * 0.25 + bias).softmax(-1) @ v


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("low", [torch.finfo(torch.float32).min, -1e9])
@pytest.mark.parametrize("stored", [False, True])
def test_masks_stay_finite_in_rows_that_calibration_did_not_have(precision, low, stored):
    x, whole = torch.randn(2, 6, 16), torch.ones(2, 6, dtype=torch.int64)
    padded = whole.clone()
    padded[0, :3] = 0  # the first three rows see no key
    program = exported(Masked(low, stored=stored), x, whole)
    half, report = to_half(program, [[x, whole]], precision)
    assert report.islands == ()
    for mask in (whole, padded):
        assert relative_error(program, half, x, mask) < report.limit


def test_masks_of_minus_infinity_stay_infinite():
    x, whole = torch.randn(2, 6, 16), torch.ones(2, 6, dtype=torch.int64)
    half, _ = to_half(exported(Masked(-torch.inf), x, whole), [[x, whole]])
    assert not half.graph.find_nodes(op="call_function", target=torch.ops.aten.clamp.default)


class Wave(nn.Module):
    def forward(self, x):
        return torch.sin(x * 1e6)


def test_error_above_the_limit_names_the_op_and_its_range():
    x = torch.linspace(0.5, 2, 8)
    with pytest.raises(errors.ConversionError, match=r"at    mul = mul.Tensor .*up to 2e\+06"):
        to_half(exported(Wave(), x), [[x]], keep=["aten.sin"])


def test_error_above_the_limit_names_half_ports():
    x = torch.linspace(0.5, 2, 8)
    with pytest.raises(errors.ConversionError, match=r"no op adds it.*\n.*leave out half_ports"):
        to_half(exported(Wave(), x), [[x]], half_ports=True)
