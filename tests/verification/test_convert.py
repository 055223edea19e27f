"""`convert` exports, decomposes, converts, verifies, optimizes and saves, or raises."""

from __future__ import annotations

import os

import pytest
import runtime
import torch
from torch import nn
from verification.models import Block, Net, dividing_by_zero, leaky

import coreai_torch
from coreai_torch.api import converting, request
from coreai_torch.asset.program import Program
from coreai_torch.errors import (
    ConversionError,
    ExportError,
    VerificationError,
    VerificationInputError,
)

X = torch.linspace(-2, 2, 24).reshape(3, 8)


def test_convert_saves_a_verified_and_optimized_program(tmp_path):
    path = tmp_path / "net.aimodel"
    program = coreai_torch.convert(
        Net().eval(), (X,), input_names=["features"], output_names=["scores"], output=path
    )
    assert os.listdir(tmp_path) == ["net.aimodel"]
    text = str(program)
    program.optimize()
    assert str(program) == text, "it is optimized already"
    got = runtime.run(program, {"features": X})
    torch.testing.assert_close(got["scores"], Net()(X).detach(), rtol=1e-5, atol=1e-5)


def test_quick_comparison_runs_the_program_that_is_returned():
    verdict = coreai_torch.convert(Net().eval(), (X,)).verdict
    assert {t.optimized for t in verdict.trials if t.engine == "runtime"} == {True}
    full = coreai_torch.convert(Net().eval(), (X,), verify="full").verdict
    assert {t.optimized for t in full.trials} == {False, True}


def test_wrong_program_also_runs_before_optimize():
    with pytest.raises(VerificationError) as raised:
        coreai_torch.convert(Net().eval(), (X,), converter=leaky())
    given = [t for t in raised.value.verdict.trials if t.inputs == "given"]
    assert [t.optimized for t in given if not t.ok] == [True, False]


@pytest.mark.parametrize(("conversion", "limit"), [(0.1, 1), (4, 2), (100, 5)])
def test_generated_inputs_take_half_as_long_as_the_conversion(conversion, limit):
    assert converting._generated(conversion) == limit


class PaddedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)

    def forward(self, x, padding):
        return self.layers(x, src_key_padding_mask=padding)


def test_padding_of_a_transformer_encoder_names_the_path_that_has_other_numbers():
    args = torch.randn(2, 4, 8), torch.arange(4) >= torch.tensor([[4], [2]])
    with pytest.raises(VerificationError, match=r"mha.set_fastpath_enabled\(False\)") as raised:
        coreai_torch.convert(PaddedEncoder().eval(), args)
    first = raised.value.verdict.notes[0]
    assert first.startswith("in inference, the fast path of nn.TransformerEncoder sets padded")
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        coreai_torch.convert(PaddedEncoder().eval(), args)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_an_unknown_verify_mode_raises_before_the_export(monkeypatch):
    monkeypatch.setattr(request, "prepare", None)
    with pytest.raises(
        VerificationInputError, match="try   pass 'quick', 'full' or 'accept-unjudged'"
    ):
        coreai_torch.convert(Net(), (X,), verify="fast")


def test_wrong_numbers_raise_and_nothing_is_saved(tmp_path):
    path = tmp_path / "net.aimodel"
    with pytest.raises(VerificationError, match=r"(?s)aten.relu.default.*code  CAT301") as raised:
        coreai_torch.convert(Net().eval(), (X,), converter=leaky(), output=path)
    assert raised.value.verdict.divergence.module == "block"
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_crash_of_the_runtime_is_reported_with_its_location(tmp_path):
    path = tmp_path / "net.aimodel"
    with pytest.raises(
        VerificationError, match=r"(?s)was killed by SIG.*at .*floor_divide"
    ) as raised:
        coreai_torch.convert(Net().eval(), (X,), converter=dividing_by_zero(), output=path)
    problems = [trial.problem for trial in raised.value.verdict.failures]
    assert any("fx_node=sigmoid, target=aten.sigmoid.default" in problem for problem in problems)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("decomposed", [False, True])
def test_convert_accepts_an_exported_program(decomposed):
    program = torch.export.export(Net().eval(), (X,))
    if decomposed:
        program = program.run_decompositions(coreai_torch.get_decomp_table())
    converted = coreai_torch.convert(program, verify=False)
    assert "coreai.graph @main" in str(converted)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def test_the_length_of_a_recurrent_layer_stays_dynamic():
    steps = torch.export.Dim("steps", min=1, max=99)
    model = Reader().eval()
    x = torch.randn(1, 5, 4)
    program = coreai_torch.convert(model, (x,), dynamic_shapes=({1: steps},), verify=False)
    longer = torch.randn(1, 9, 4)
    (got,) = runtime.run(program, {"x": longer}).values()
    torch.testing.assert_close(got, model(longer).detach(), rtol=1e-5, atol=1e-5)


def test_convert_externalizes_modules():
    program = coreai_torch.convert(Net().eval(), (X,), externalize_modules=[Block], verify=False)
    assert "coreai.graph noinline @block" in str(program)


def test_keyword_arguments_are_inputs():
    class Scaled(nn.Module):
        def forward(self, x, *, scale):
            return x * scale

    program = coreai_torch.convert(Scaled(), (X,), {"scale": torch.tensor(2.0)}, verify=False)
    (got,) = runtime.run(program, {"x": X, "scale": torch.tensor(2.0)}).values()
    assert torch.equal(got, X * 2)


def test_the_output_path_is_checked_before_the_export(monkeypatch):
    monkeypatch.setattr(request, "prepare", None)
    with pytest.raises(ConversionError, match=r"ends in .aimodel, 'net.mlmodel' ends in"):
        coreai_torch.convert(Net(), (X,), output="net.mlmodel")


def test_a_model_without_arguments_raises_with_a_hint():
    with pytest.raises(ExportError, match=r"no arguments to export Net with\n  try   pass args="):
        coreai_torch.convert(Net())


def test_convert_rejects_a_bare_tensor_and_a_string_as_the_model():
    with pytest.raises(ExportError, match=r"args is one tensor, but .* Net are a tuple"):
        coreai_torch.convert(Net(), X)
    with pytest.raises(ConversionError, match=r"an nn.Module or an ExportedProgram, not a str"):
        coreai_torch.convert("net", (X,))


def test_a_failed_export_names_the_model_and_keeps_the_cause():
    class Branches(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(ExportError, match=r"torch.export could not export Branches") as raised:
        coreai_torch.convert(Branches(), (X,))
    assert raised.value.__cause__ is not None


def test_externalizing_modules_of_an_exported_program_raises():
    program = torch.export.export(Net().eval(), (X,))
    with pytest.raises(ConversionError, match="needs the model itself"):
        coreai_torch.convert(program, externalize_modules=[Block])


def test_an_interrupted_save_leaves_no_file(tmp_path, monkeypatch):
    path = tmp_path / "net.aimodel"

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Program, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        coreai_torch.convert(Net().eval(), (X,), verify=False, output=path)
    assert os.listdir(tmp_path) == []


def test_convert_does_not_stage_programs_in_the_given_converter():
    converter = leaky()
    program = coreai_torch.convert(Net().eval(), (X,), converter=converter, verify=False)
    assert "-1.250000e-01" in str(program)
    with pytest.raises(RuntimeError, match="nothing is staged"):
        converter.to_coreai()


def test_one_tensor_passed_twice_becomes_two_inputs():
    class Sum(nn.Module):
        def forward(self, x, *, y):
            return x * 2 + y

    x, y = torch.rand(3), torch.rand(3)
    program = coreai_torch.convert(Sum(), (x,), {"y": x})
    (got,) = runtime.run(program, {"x": x, "y": y}).values()
    torch.testing.assert_close(got, x * 2 + y)
