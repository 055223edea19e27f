"""Programs with Metal kernels or float16 products run in torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from verification.models import Net, leaky

from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel
from coreai_torch.verification import TrialPlan, verify

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
