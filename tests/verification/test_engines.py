"""Programs with Metal kernels or float16 products run in torch."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from verification.models import Net, leaky

import coreai_torch
from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel
from coreai_torch.ir import dialect as cai
from coreai_torch.verification import TrialPlan, verify
from coreai_torch.verification.predicted_time import slow_ops

ID = MetalParameter("id", "uint", "thread_position_in_grid")
X = torch.linspace(-2, 2, 24)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


RIGHT = TorchMetalKernel("verified_right", ["x"], ["y"], "y[id] = x[id] * 2;", doubled, [ID])
WRONG = TorchMetalKernel("verified_wrong", ["x"], ["y"], "y[id] = x[id] * 3;", doubled, [ID])


class Kernels(nn.Module):
    """Ops before and after a kernel."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, x):
        size = x.shape[0]
        y = self.kernel(
            x + 1,
            threads_per_grid=(size, 1, 1),
            threads_per_thread_group=(32, 1, 1),
            result_shapes=[[size]],
        )
        return torch.tanh(y)


def verdict_of(kernel, **options):
    converter = TorchConverter().register_custom_kernels([kernel])
    return verify(Kernels(kernel), None, (X,), converter=converter, **options)


def test_kernels_run_from_their_metal_source():
    rows = torch.export.Dim("rows", min=1, max=99)
    verdict = verdict_of(RIGHT, dynamic_shapes=({0: rows},), trials=TrialPlan(seeds=0, edges=False))
    assert verdict, str(verdict)
    assert verdict.kernels == ("verified_right",)
    assert {t.outputs[0].shape for t in verdict.trials} == {(24,), (1,), (25,), (99,)}
    assert any("verified_right from their source" in note for note in verdict.notes)


def test_a_wrong_kernel_is_the_first_op_that_diverges():
    verdict = verdict_of(WRONG, trials=TrialPlan(seeds=0, edges=False))
    assert not verdict
    assert verdict.kernels == ("verified_wrong",)
    assert verdict.divergence.op.startswith("coreai_kernels.verified_wrong.")
    assert verdict.divergence.alone is True


class Product(nn.Module):
    def forward(self, x):
        return x @ x.mT


def test_float16_products_accumulate_in_float32():
    x = torch.full((2, 4096), 0.1, dtype=torch.float16)
    verdict = verify(Product(), None, (x,), trials=TrialPlan(seeds=0, edges=False))
    assert verdict, str(verdict)
    assert any("float16 products" in note for note in verdict.notes)
    narrow = verify(
        Product(),
        None,
        (x,),
        trials=TrialPlan(seeds=0, edges=False),
        engine="runtime",
        locate=False,
    )
    assert not narrow
    assert any("the runtime causes the difference" in note for note in narrow.notes)


class Sums(nn.Module):
    """Ops that accumulate along 4096 elements."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(1, 1, 2).half()

    def forward(self, x):
        pooled = nn.functional.avg_pool1d(x, 64)
        return x.cumsum(1), x.mean(1), self.up(x.reshape(1, 1, 64, 64)).sum((2, 3)), pooled


def half_sums(**options):
    x = torch.full((1, 4096), 0.1, dtype=torch.float16)
    return verify(Sums().eval(), None, (x,), trials=TrialPlan(seeds=1, edges=False), **options)


def test_float16_sums_accumulate_in_float32():
    verdict = half_sums()
    assert verdict, str(verdict)
    assert {trial.engine for trial in verdict.trials} == {"torch"}
    assert not half_sums(engine="runtime", locate=False)


def lossy_scan(ctx, x, dim, dtype):
    return cai.scan(cai.mul(x, cai.like(x, 0.98)), dim, "sum")


def one_element(ctx, x, dim, keepdim, dtype):
    return cai.shrink_dims(cai.slice_axis(x, 1, 9, 10), [1])


def some_elements(ctx, x, kernel_size, stride, padding, ceil_mode, count_include_pad):
    return cai.slice_axis(x, 1, 9, 73)


WRONG_SUMS = {"cumsum": lossy_scan, "mean.dim": one_element, "avg_pool1d": some_elements}


@pytest.mark.parametrize("name", WRONG_SUMS)
def test_a_wrong_sum_of_float16_is_found(name):
    """A scale that is off by 2 %, and one element instead of a mean of 4096 or 64."""
    converter = TorchConverter()
    converter.register_torch_lowering(f"aten::{name}", allow_override=True)(WRONG_SUMS[name])
    found = half_sums(converter=converter)
    assert not found
    assert name in found.divergence.op


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["runtime", "torch"])
def test_both_engines_give_the_same_verdict(engine):
    plan = TrialPlan(seeds=0, edges=False)
    model, x = Net().eval(), X.reshape(3, 8)
    assert verify(model, None, (x,), trials=plan, engine=engine)
    wrong = verify(model, None, (x,), trials=plan, engine=engine, converter=leaky())
    assert wrong.divergence.op == "aten.relu.default"
    if engine == "runtime":
        assert any("the program causes the difference" in note for note in wrong.notes)


def test_verify_rejects_an_unknown_engine():
    with pytest.raises(ValueError, match="no engine 'gpu'"):
        verify(Net(), None, (X.reshape(3, 8),), engine="gpu")


class Padded(nn.Module):
    def forward(self, x):
        return nn.functional.pad(x.flip(-1), (1, 1, 1, 1))


def test_torch_runs_what_the_runtime_would_take_too_long_for():
    """A padded picture of 512 x 512 with 64 channels takes 2 seconds on the Linux runtime."""
    image = torch.randn(1, 3, 64, 64)
    slow = verify(Padded(), None, (image,), seconds=1e-3)
    assert slow, str(slow)
    assert {t.engine for t in slow.trials} == {"torch"}
    assert {t.optimized for t in slow.trials} == {False, True}
    (note,) = slow.notes
    assert re.search(r"would take at least 0\.00\d+ s \(pad 0\.00\d+ s, reverse", note)
    waits = verify(Padded(), None, (image,), seconds=1e-3, engine="runtime")
    assert {t.engine for t in waits.trials} == {"runtime"}
    in_time = verify(Padded(), None, (image,), trials=TrialPlan(seeds=0, edges=False))
    assert {t.engine for t in in_time.trials} == {"runtime"}


def test_slow_ops_are_timed_by_the_size_of_their_results(tmp_path):
    program = coreai_torch.convert(Padded(), (torch.zeros(1, 2, 100, 100),), verify=False)
    predicted = slow_ops(program, "main")
    assert list(predicted) == ["pad", "reverse"]
    assert 2e-3 < predicted["pad"] < 4e-3
    assert slow_ops(program, "other") == slow_ops(tmp_path / "none.aimodel", "main") == {}
