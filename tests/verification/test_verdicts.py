"""Verdicts on correct and incorrect programs."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from verification.models import Counter, Net, dividing_by_zero, leaky

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.errors import ArgumentTypeError, VerificationError, VerificationInputError
from coreai_torch.ir import dialect as cai
from coreai_torch.verification import TrialPlan, verify

GIVEN_ONLY = TrialPlan(seeds=0, sizes=0, edges=False, steps=1)
X = torch.linspace(-2, 2, 24).reshape(3, 8)


def exported(model, *args, **options):
    program = torch.export.export(model.eval(), args, **options)
    return program.run_decompositions(get_decomp_table())


@pytest.fixture(scope="module")
def counted():
    model = Counter().eval()
    rows = torch.export.Dim("rows", min=1, max=64)
    return model, verify(model, None, (X,), dynamic_shapes=({0: rows},))


def test_a_correct_program_passes(counted):
    _, verdict = counted
    assert verdict
    assert verdict.ok
    assert verdict.failures == ()
    assert str(verdict).startswith("entrypoint 'main' matches torch in ")
    assert len(verdict.trials) == verdict.runtime_calls == 72
    assert verdict.raise_if_failed() is verdict


def test_all_kinds_of_inputs_run_before_and_after_optimize(counted):
    _, verdict = counted
    tried = {(t.inputs, t.optimized) for t in verdict.trials}
    labels = {"given", "x[0]=1", "x[0]=4", "x[0]=64", "seed 1", "seed 2", "zeros", "extremes"}
    labels |= {"small", "large", "negative", "tiny"}
    assert tried == {(label, optimized) for label in labels for optimized in (False, True)}
    shapes = {t.inputs: t.outputs[0].shape for t in verdict.trials}
    assert (shapes["given"], shapes["x[0]=1"], shapes["x[0]=4"]) == ((3, 8), (1, 8), (4, 8))


def test_state_is_compared_over_several_calls(counted):
    model, verdict = counted
    assert {t.step for t in verdict.trials} == {0, 1, 2}
    assert all([s.name for s in t.states] == ["b_total"] for t in verdict.trials)
    assert torch.equal(model.total, torch.zeros(8)), "the model's own state is restored"


def test_each_output_has_error_figures(counted):
    worst = counted[1].worst()
    assert len(worst) == 4
    softmax = worst["_softmax"]
    assert 0 < softmax.max_abs < 1e-6
    assert softmax.mean_abs <= softmax.max_abs
    assert softmax.cosine == pytest.approx(1)
    assert softmax.psnr > 100
    assert softmax.argmax_agreement == 1
    assert worst["argmax"].tolerance == 0, "integers are exact"


def test_a_verdict_converts_to_json(counted):
    data = json.loads(json.dumps(counted[1].as_dict(), allow_nan=False))
    assert data["ok"] is True
    assert len(data["trials"]) == len(counted[1].trials)
    assert {t["engine"] for t in data["trials"]} == {"runtime"}
    assert data["trials"][0]["outputs"][0]["tolerance"] > 0
    assert set(data["worst"]) == set(counted[1].worst())


def test_divergence_names_the_op_with_several_results_not_its_getitem():
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::topk", allow_override=True)
    def topk(ctx, x, k, dim, largest, sorted):
        values = cai.add(x, cai.like(x, 1.0))
        return [values, cai.cast(values, torch.int32)]

    class Largest(nn.Module):
        def forward(self, x):
            return x.topk(8)[0] * 2

    verdict = verify(Largest(), None, (X,), converter=converter, trials=GIVEN_ONLY)
    assert "first op that diverges: aten.topk.default (%topk)" in str(verdict)


@pytest.fixture(scope="module")
def wrong():
    return verify(Net().eval(), None, (X,), converter=leaky(), trials=GIVEN_ONLY)


def test_divergence_names_the_op_its_place_and_both_values(wrong):
    assert not wrong
    found = wrong.divergence
    assert (found.op, found.node, found.module) == ("aten.relu.default", "relu", "block")
    assert "models.py" in found.source_line
    assert found.alone is True
    assert (found.error.want, found.error.got) == (0.0, pytest.approx(-0.125))
    text = str(wrong)
    assert "first op that diverges: aten.relu.default (%relu) in module 'block'" in text
    assert "got -0.125, want 0.0" in text


def test_raise_if_failed_raises_an_error_with_the_verdict(wrong):
    with pytest.raises(VerificationError, match="does not match torch") as raised:
        wrong.raise_if_failed()
    assert raised.value.verdict is wrong


def test_a_crash_is_reported_with_the_last_op():
    verdict = verify(Net().eval(), None, (X,), converter=dividing_by_zero(), trials=GIVEN_ONLY)
    assert not verdict
    problem = verdict.failures[0].problem
    assert "was killed by SIG" in problem
    assert "while running" in problem
    assert "floor_divide" in problem
    after = next(t for t in verdict.failures if t.optimized).problem
    assert "fx_node=sigmoid, target=aten.sigmoid.default" in after


class Pair(nn.Module):
    def forward(self, x):
        return x + 1, x * 2


class SwappedPair(nn.Module):
    def forward(self, x):
        return x * 2, x + 1


def test_outputs_in_another_order_are_reported():
    program = TorchConverter().add_exported_program(exported(Pair(), X)).to_coreai()
    verdict = verify(exported(SwappedPair(), X), program, trials=GIVEN_ONLY)
    assert not verdict
    (problem,) = verdict.ports
    assert problem == "the outputs are in the order ['add', 'mul']; torch's is ['mul', 'add']"


def test_outputs_under_each_others_names_are_reported():
    names = {"output_names": ["sum", "product"]}
    program = TorchConverter().add_exported_program(exported(SwappedPair(), X), **names).to_coreai()
    verdict = verify(exported(Pair(), X), program, trials=GIVEN_ONLY, **names)
    assert "the output 'sum' holds what torch returns as 'product'" in verdict.ports
    assert "the output 'product' holds what torch returns as 'sum'" in verdict.ports


def test_names_other_than_the_requested_ones_are_reported():
    program = TorchConverter().add_exported_program(exported(Pair(), X)).to_coreai()
    verdict = verify(Pair(), program, (X,), output_names=["a", "b"], trials=GIVEN_ONLY)
    assert verdict.ports == ("the outputs are called ['add', 'mul'], not ['a', 'b']",)


def test_a_program_with_a_different_number_of_ports_is_not_run():
    program = TorchConverter().add_exported_program(exported(Net(), X)).to_coreai()
    verdict = verify(Pair(), program, (X,), trials=GIVEN_ONLY)
    assert not verdict
    assert verdict.trials == ()
    assert "but torch has ['add', 'mul']" in verdict.ports[0]


def test_verify_accepts_the_path_of_an_asset(tmp_path):
    program = TorchConverter().add_exported_program(exported(Pair(), X)).to_coreai()
    program.optimize()
    program.save_asset(tmp_path / "pair.aimodel")
    assert coreai_torch.verify(Pair(), tmp_path / "pair.aimodel", (X,), trials=GIVEN_ONLY)


class Half(nn.Module):
    def forward(self, x):
        return x[: x.shape[0] // 2]


def test_generated_sizes_satisfy_the_constraints_of_the_export():
    half = torch.export.Dim("half", min=2, max=5)
    program = torch.export.export(Half(), (X[:2].repeat(2, 1),), dynamic_shapes=({0: 2 * half},))
    verdict = verify(program, trials=TrialPlan(seeds=0, sizes=4, edges=False))
    assert verdict, str(verdict)
    assert {t.outputs[0].shape[0] for t in verdict.trials} == {2, 3, 5}


class Positive(nn.Module):
    def forward(self, x):
        torch._check(x.sum().item() > 0)
        return torch.log(x)


def test_inputs_that_torch_rejects_are_skipped_with_the_reason():
    verdict = verify(Positive(), None, (X.abs() + 1,), trials=TrialPlan(seeds=0, sizes=0))
    assert verdict, str(verdict)
    (left,) = (left for left in verdict.left_out if left.startswith("zeros"))
    assert left.startswith("zeros: torch itself rejects them: ")


def test_generated_inputs_are_skipped_after_the_time_limit():
    verdict = verify(Pair(), None, (X,), seconds=0.0)
    assert verdict
    assert {t.inputs for t in verdict.trials} == {"given"}
    assert len(verdict.left_out) == 9
    assert "the time limit of 0 s was reached" in verdict.left_out[0]


def test_verify_rejects_a_dict_in_place_of_a_model():
    with pytest.raises(ArgumentTypeError, match=r"nn.Module or an ExportedProgram, not a dict"):
        verify({}, None, (X,))


def test_verify_rejects_a_wrong_number_of_arguments():
    with pytest.raises(VerificationInputError, match=r"2 arguments were given.*takes 1: \['x'\]"):
        verify(exported(Pair(), X), None, (X, X))


def test_verify_rejects_a_path_without_an_asset(tmp_path):
    with pytest.raises(VerificationInputError, match="there is no asset at"):
        verify(Pair(), tmp_path / "none.aimodel", (X,))


def test_a_large_program_is_loaded_once_at_a_time(monkeypatch):
    monkeypatch.setattr("coreai_torch.verification.verifying._LARGE", 0)
    verdict = verify(Pair(), None, (X,), trials=GIVEN_ONLY)
    assert verdict
    assert [t.optimized for t in verdict.trials] == [False, True]


def test_inputs_with_infinite_results_are_skipped(counted):
    _, verdict = counted
    assert "infinite: torch's results are infinite or NaN" in verdict.left_out


def test_a_wrong_program_is_not_tried_further():
    verdict = verify(Net().eval(), None, (X,), converter=leaky(), locate=False)
    assert {t.inputs for t in verdict.trials} == {"given"}
    assert verdict.left_out == ("others: earlier inputs show that the program is wrong",)
    assert str(verdict).count("earlier inputs show") == 1


def test_quick_lets_torch_run_generated_inputs_if_calls_are_slow(monkeypatch):
    monkeypatch.setattr("coreai_torch.verification.trials._SLOW_CALL", 0.0)
    verdict = verify(Pair(), None, (X,), mode="quick")
    assert verdict, str(verdict)
    ran = {(t.inputs, t.optimized, t.engine) for t in verdict.trials}
    assert {r for r in ran if r[2] == "runtime"} == {
        ("given", False, "runtime"),
        ("given", True, "runtime"),
    }
    assert ("seed 1", False, "torch") in ran
    assert verdict.runtime_calls == 2
    assert "the runtime made 2 calls before and after optimize(): inputs given" in str(verdict)
    assert "torch, op by op, made " in str(verdict)


def test_verify_rejects_an_unknown_mode():
    with pytest.raises(VerificationInputError, match="no verification mode 'fast'"):
        verify(Pair(), None, (X,), mode="fast")


def test_verify_rejects_an_unknown_keyword():
    with pytest.raises(TypeError, match=r"verify has no argument 'seed'; there are \['converter'"):
        verify(Pair(), None, (X,), seed=3)
