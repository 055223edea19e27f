"""The error scale of an element comes from the ops and values on its own path."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from coreai_torch.numerics.error_analysis import Analysis, Lanes, _Call, error_scale
from coreai_torch.numerics.float64 import run_in_float64
from coreai_torch.numerics.rounding import Kind, kind_of

EPS = torch.finfo(torch.float32).eps


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def _run(run, function, *args):
    program = torch.export.export(Model(function), args).run_decompositions({})
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    feed = dict(zip(placeholders, args, strict=True))
    (output,) = (n for n in program.graph.nodes if n.op == "output")
    found = run(program.graph_module, feed, output.args[0])
    return [found[node] for node in output.args[0]]


def scales(function, *args, runs=8):
    def run(module, feed, wanted):
        return Analysis(module, runs).run(feed, wanted)

    return [error_scale(lanes).scale for lanes in _run(run, function, *args)]


X = torch.linspace(0.5, 3, 24)


def test_moved_elements_have_no_error():
    (scale,) = scales(lambda x: torch.relu(x.flip(0)[2:].reshape(2, 11).mT), X)
    assert not scale.any()


def test_each_element_has_the_error_of_its_own_path():
    (scale,) = scales(lambda x: torch.cat([x * 1e6, torch.sin(x) * 1e-2, x]), X)
    large, small, moved = scale.chunk(3)
    assert (large > 0.01).any()
    assert 0 < small.max() < 1e-8
    assert not moved.any()


def test_cancellation_raises_the_scale():
    (scale,) = scales(lambda x: (x * 3 + 1e4) - 1e4, X)
    assert (scale > 1e-4).all()


def test_a_sum_has_the_error_of_its_terms():
    x = torch.tensor([1e6, -1e6, 1.0]).repeat(50)
    (scale,) = scales(lambda x: x.sum().reshape(1), x)
    assert 1e8 * EPS / 10 < float(scale) < 1e8 * EPS * 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_scale_follows_the_dtype_of_each_op(dtype):
    wide, narrow = scales(lambda x: (torch.exp(x), torch.exp(x.to(dtype))), X)
    ratio = narrow.mean() / wide.mean()
    assert ratio > torch.finfo(dtype).eps / EPS / 10


def test_an_element_next_to_a_step_may_be_on_either_side():
    x = torch.tensor([1.5, 2.5, 0.2])
    (scale,) = scales(lambda x: torch.round(x / 3 * 3), x)
    assert scale.tolist() == [1.0, 1.0, 0.0]
    (exact,) = scales(torch.round, x)
    assert not exact.any(), "an input has no error"


def test_equal_scores_are_tied_and_others_are_not():
    x = torch.tensor([3.0, 1.0, 1.0, 0.5])
    values, positions = scales(lambda x: torch.topk(x, 4), x)
    assert not values.any()
    assert positions.tolist() == [0, 1, 1, 0]


def test_scores_within_their_error_are_tied():
    x = torch.tensor([0.3, 0.3 + 6e-8, 0.1])
    (scale,) = scales(lambda x: torch.sin(x * 3).argmax().reshape(1), x)
    assert scale.tolist() == [1.0]
    (apart,) = scales(lambda x: torch.sin(x * 3).argmax().reshape(1), torch.tensor([0.3, 0.4]))
    assert apart.tolist() == [0.0]


def test_few_runs_use_the_neighbours_of_an_element():
    (few,) = scales(lambda x: torch.exp(x) * torch.sin(x) - x, X.repeat(40), runs=2)
    (many,) = scales(lambda x: torch.exp(x) * torch.sin(x) - x, X.repeat(40), runs=16)
    assert (few > many / 16).all()


def test_few_runs_use_all_elements_of_a_small_tensor():
    base = torch.linspace(0.2, 0.3, 10).half()
    noisy = base + 2**-12
    noisy[3] = base[3]  # unchanged by chance in both runs
    assert (error_scale(Lanes(base, (noisy, noisy))).scale > 0).all()


def test_a_kernel_that_rejects_a_layout_runs_on_a_contiguous_copy():
    def kernel(x):
        if not x.is_contiguous():
            raise RuntimeError("Expected X.is_contiguous(memory_format) to be true, but got false.")
        return x + 1

    call = _Call(SimpleNamespace(target=kernel), [((torch.zeros(2, 3).T,), {})])
    assert torch.equal(call.evaluate(-1), torch.ones(3, 2))


def test_a_branch_rounds_inside():
    def branch(x):
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: x.clone(), (x,))

    (scale,) = scales(branch, X)
    assert 0 < scale.max() < 100 * EPS


def test_the_float64_reference_ignores_the_dtypes_of_the_graph():
    def steps(x):
        return (x.to(torch.float16) + 1).to(torch.float32) - torch.ones(24)

    (exact,) = _run(run_in_float64, steps, X)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, X.double(), rtol=1e-12, atol=0)


def test_ops_are_classified():
    aten = torch.ops.aten
    x = torch.ones(2)
    assert kind_of(aten.view.default, (x, [2]), {}, x) is Kind.EXACT
    assert kind_of(aten.add.Tensor, (x, x), {}, x) is Kind.ROUNDED
    assert kind_of(aten.mm.default, (x, x), {}, x) is Kind.SUM
    assert kind_of(aten.round.default, (x,), {}, x) is Kind.STEP
    assert kind_of(aten._to_copy.default, (x,), {}, x.half()) is Kind.STEP
    assert kind_of(aten._to_copy.default, (x.half(),), {}, x) is Kind.EXACT
    assert kind_of(aten.max.dim, (x, 0), {}, (x, x)) is Kind.ORDER
    assert kind_of(aten.tanh.default, (x,), {}, x) is Kind.GENERAL


def test_whole_numbers_that_jumped_do_not_jump_further():
    def floor(x):
        return (x * 3).floor().long()

    lanes = lanes_of(floor, torch.tensor([1.0, 0.5]))
    assert {tuple(v.tolist()) for v in lanes.noisy} <= {(3, 1), (2, 1)}


def test_index_out_of_bounds_in_a_noisy_run_is_replaced():
    def last(x, table):
        return table[(x * 3).ceil().long()]

    lanes = lanes_of(last, torch.tensor([1.0, 0.5]), torch.tensor([1.0, 2.0, 4.0, 8.0]))
    assert torch.equal(lanes.base, torch.tensor([8.0, 4.0]))
    assert all(torch.isfinite(v).all() for v in lanes.noisy)


def lanes_of(function, *args):
    def run(module, feed, wanted):
        return Analysis(module).run(feed, wanted)

    (lanes,) = _run(run, function, *args)
    return lanes


def test_no_computed_element_of_a_large_tensor_is_exact_by_chance():
    x = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    (scale,) = scales(lambda x: (x + 4.0) / 4.0, x)
    assert scale.min() >= EPS / 2


def test_moved_blocks_of_a_large_tensor_are_exact():
    x = torch.linspace(0.5, 3, 4096)
    (scale,) = scales(lambda x: torch.cat([(x + 4.0) / 4.0, x]), x)
    assert not scale[4096 + 16 :].any()


def test_infinities_of_pointwise_ops_are_exact():
    x = torch.tensor([0.0, 1.0, 2.0, torch.inf])
    for function in (torch.log, torch.reciprocal, lambda x: -2 / x, lambda x: x * 3e38 + 1):
        (scale,) = scales(function, x)
        assert not scale[~function(x).isfinite()].any()


def test_a_result_next_to_an_overflow_has_no_limit():
    (scale,) = scales(lambda x: torch.exp(x * 1.0000001), torch.tensor([88.722835, 99.0]))
    assert scale.tolist() == [torch.inf, 0.0]


def symmetric_spectrum(x):
    return torch.fft.rfft(torch.cat([x, x[:, 1:].flip(-1)], -1))


@pytest.mark.parametrize(
    "angle",
    [
        lambda z: z.angle(),
        lambda z: torch.atan2(z.imag, z.real),
        lambda z: torch.view_as_real(z.log())[..., 1],
    ],
)
def test_signs_of_rounding_errors_decide_at_a_branch_cut(angle):
    signal = torch.randn(4, 129, generator=torch.Generator().manual_seed(0))
    spectrum = symmetric_spectrum(signal)
    at_cut = (spectrum.real < -1) & (spectrum.imag != 0)
    (scale,) = scales(lambda x: angle(symmetric_spectrum(x)), signal)
    assert at_cut.sum() > 100
    assert (scale[at_cut] > 3).double().mean() > 0.99


def test_angles_off_the_branch_cut_keep_their_error():
    points = torch.polar(torch.ones(64), torch.linspace(-3, 3, 64)) * 3
    (scale,) = scales(lambda x: torch.view_as_complex(x * 1.1).angle(), torch.view_as_real(points))
    assert scale.max() < 8 * EPS


@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(1), nn.AvgPool2d(30)])
def test_a_mean_of_equal_values_has_an_error_that_does_not_cancel(pool):
    """Exported, this is one kernel that adds them one after the other: 8 units off."""
    equal, other = torch.full((1, 1, 30, 30), 0.1), torch.rand(1, 1, 30, 30)
    (of_equal,), (of_others,) = scales(pool, equal), scales(pool, other)
    assert of_equal > 30 * EPS * 0.1
    assert of_others < 30 * EPS * 0.5
