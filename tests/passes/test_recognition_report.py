"""The recognition report, what recognition leaves unchanged, and its use in the converter."""

from __future__ import annotations

import time

import pytest
import torch
from compat.programs import composites
from passes.recognized import Plain, assert_runs_as, exported
from runtime import descriptor
from torch import nn

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table
from coreai_torch.passes.recognize import recognized


class Norm(nn.Module):
    def __init__(self, dim=8, axis=-1):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, dim))
        self.axis = axis

    def forward(self, input):
        return self.weight * (
            input * torch.rsqrt(input.pow(2).mean(self.axis, keepdim=True) + 1e-6)
        )


class Attention(nn.Module):
    def forward(self, x):
        return (x @ x.transpose(1, 2) * 0.5).softmax(-1) @ x


def _model():
    return nn.Sequential(Norm(), Attention(), Norm(axis=1))


X = torch.linspace(-1, 1, 48).reshape(2, 3, 8)


def test_report_lists_composites_places_and_reasons():
    converter = TorchConverter(recognize=True).add_exported_program(exported(_model(), X))
    assert str(converter.recognition_report) == (
        "recognised: 1 rms_norm, 1 scaled_dot_product_attention\n"
        "  rms_norm in 0 (%mul_1)\n"
        "  scaled_dot_product_attention in 1 (%matmul_1)\n"
        "left alone: 1\n"
        "  rms_norm in 2 (%rsqrt_1): the mean is over axes [1] of 3, not the last"
    )
    assert [row.node for row in converter.recognition_report.at("1")] == ["matmul_1"]


def test_recognition_is_off_by_default():
    converter = TorchConverter().add_exported_program(exported(_model(), X))
    assert str(converter.recognition_report) == "recognised: nothing"
    assert "composite_declaration" not in str(converter.to_coreai())


def test_recognize_a_subset_of_composites():
    converter = TorchConverter(recognize=["rms_norm"])
    converter.add_exported_program(exported(_model(), X))
    assert converter.recognition_report.counts == {"rms_norm": 1}
    with pytest.raises(ValueError, match="nothing recognises 'rmsnorm'\n  try   True, or some of"):
        TorchConverter(recognize="rmsnorm")


def test_report_follows_the_entry_points():
    converter = TorchConverter(recognize=True)
    converter.add_exported_program(exported(Norm(), X), entrypoint_name="a")
    converter.add_exported_program(exported(Norm(), X), entrypoint_name="b")
    assert [row.entrypoint for row in converter.recognition_report.found] == ["a", "b"]
    assert "rms_norm in a: the model itself (%mul_1)" in str(converter.recognition_report)
    converter.clear(entrypoints=["a"])
    assert [row.entrypoint for row in converter.recognition_report.found] == ["b"]


def test_exported_program_and_names_are_unchanged():
    program = exported(Norm(), X)
    before = str(program.graph)
    plain = TorchConverter().add_exported_program(program).to_coreai()
    found = TorchConverter(recognize=True).add_exported_program(program).to_coreai()
    assert str(program.graph) == before
    assert descriptor(found) == descriptor(plain)
    assert descriptor(found).output_names == ["mul_1"]


def test_op_inside_a_composite_needs_no_lowering():
    @torch.library.custom_op("recognition_test::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    opaque.register_fake(torch.empty_like)
    program = exported(nn.Sequential(Norm(), Plain(lambda m, x: opaque(x))), X)
    converter = TorchConverter(recognize=True)
    (found,) = converter.blockers(program)
    assert found.op == "recognition_test.opaque.default"
    assert converter.recognition_report.found == ()


def test_recognition_is_deterministic():
    texts = {
        str(TorchConverter(recognize=True).add_exported_program(exported(_model(), X)).to_coreai())
        for _ in range(2)
    }
    assert len(texts) == 1


def _exporting(module):
    return torch.export.export(module, (X,)).run_decompositions(get_decomp_table())


def test_externalized_composite_is_unchanged():
    converter = TorchConverter(recognize=True).add_pytorch_module(
        _model(), _exporting, externalize_modules=[ExternalizeSpec(Norm, "norm", ["axis"])]
    )
    assert converter.recognition_report.counts == {"scaled_dot_product_attention": 1}
    program = converter.to_coreai()
    assert len(composites(program, "norm")) == 2
    assert not composites(program, "rms_norm")


def test_recognition_inside_a_boundary_without_declaration():
    converter = TorchConverter(recognize=True).add_pytorch_module(
        nn.Sequential(nn.Sequential(Norm(), nn.ReLU()), Norm()),
        _exporting,
        externalize_modules=[nn.Sequential],
    )
    assert converter.recognition_report.counts == {"rms_norm": 2}
    assert len(composites(converter.to_coreai(), "rms_norm")) == 1


class _Half(nn.Module):
    def forward(self, x):
        return x.pow(2).mean(-1, keepdim=True) + 1e-6


def test_boundary_through_a_norm_is_reported():
    model = Plain(lambda m, x: x * torch.rsqrt(m.inner(x)))
    model.inner = _Half()
    converter = TorchConverter(recognize=True).add_pytorch_module(
        model, _exporting, externalize_modules=[_Half]
    )
    (missed,) = converter.recognition_report.missed
    assert missed.why == "the boundary of an externalized module runs through it"


class _State(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, 3, 1))

    def forward(self, x):
        self.mean.copy_(x.pow(2).mean(-1, keepdim=True))
        return x * torch.rsqrt(self.mean + 1e-6)


def test_composite_with_a_state_write_inside_is_not_recognized():
    converter = TorchConverter(recognize=True).add_exported_program(exported(_State(), X))
    assert converter.recognition_report.counts == {}


class _Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attend = Norm(), Attention()

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.norm(x), lambda x: self.attend(x), (x,))


def test_recognition_in_the_branches_of_cond():
    model = _Branches().requires_grad_(False)
    converter = TorchConverter(recognize=True).add_exported_program(exported(model, X))
    assert converter.recognition_report.counts == {
        "rms_norm": 1,
        "scaled_dot_product_attention": 1,
    }
    assert_runs_as(converter.to_coreai(), model, (X - 1,), (X + 1,))


@pytest.mark.slow
def test_time_is_linear_in_the_nodes():
    def seconds(depth):
        program = exported(nn.Sequential(*(Norm() for _ in range(depth))), X)
        start = time.process_time()
        assert recognized(program)[1].counts == {"rms_norm": depth}
        return time.process_time() - start

    seconds(10)
    assert seconds(400) < 4 * 3 * seconds(
        100
    )  # four times the nodes; factor three for a busy machine
