"""Formulas that lose digits are rejected, and the converted ops are as accurate as torch's.

Each input is one where the formula of the textbook, in float32, has a visible error.
"""

from __future__ import annotations

import math

import pytest
import runtime
import torch

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.numerics.one_op import OneOp

aten = torch.ops.aten
SMALL = torch.tensor([1e-6, -3e-6, 2e-4, 1e-9])
LARGE = torch.tensor([[1000.0, 1000.5, 999.0], [-1000.0, -1001.0, -999.5]])
SHIFTED = torch.tensor([[4096.25, 4096.5, 4097.0, 4095.75], [1.0, 2.0, 3.0, 5.0]])


def naive_softmax(x, dim, half):
    return x.exp() / x.exp().sum(dim, keepdim=True)


def naive_variance(x, dim, *, correction=1.0):
    count = x.shape[-1]
    return ((x * x).mean(-1) - x.mean(-1) ** 2) * count / (count - correction)


def naive_asinh(x):
    return (x + (x * x + 1).sqrt()).log()


def naive_layer_norm(x, shape, weight, bias, eps):
    mean, square = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)
    return (x - mean) / (square - mean * mean + eps).sqrt()


# op, arguments, keyword arguments, formula
TRAPS = {
    "log1p": (aten.log1p.default, (SMALL,), {}, lambda x: (1 + x).log()),
    "expm1": (aten.expm1.default, (SMALL,), {}, lambda x: x.exp() - 1),
    "logsumexp": (aten.logsumexp.default, (LARGE, [1]), {}, lambda x, d: x.exp().sum(1).log()),
    "softmax": (aten._softmax.default, (LARGE, 1, False), {}, naive_softmax),
    "log_softmax": (
        aten._log_softmax.default,
        (LARGE, 1, False),
        {},
        lambda x, d, h: naive_softmax(x, d, h).log(),
    ),
    "logaddexp": (
        aten.logaddexp.default,
        (LARGE[0], LARGE[1]),
        {},
        lambda x, y: (x.exp() + y.exp()).log(),
    ),
    "var": (aten.var.correction, (SHIFTED, [1]), {"correction": 1.0}, naive_variance),
    "hypot": (
        aten.hypot.default,
        (torch.tensor([1e30, 3e-30]), torch.tensor([1e30, 4e-30])),
        {},
        lambda x, y: (x * x + y * y).sqrt(),
    ),
    "sinc": (aten.sinc.default, (torch.tensor([0.0, 1e-4, 0.5]),), {}, lambda x: x.sin() / x),
    "erfc": (
        aten.erfc.default,
        (torch.tensor([3.0, 4.5, 6.0]),),
        {},
        lambda x: 1 - x.erf(),
    ),
    "sigmoid": (
        aten.sigmoid.default,
        (torch.tensor([-20.0, -60.0, -100.0]),),
        {},
        lambda x: 1 - 1 / (1 + x.exp()),
    ),
    "softplus": (
        aten.softplus.default,
        (torch.tensor([-20.0, -30.0, 100.0]),),
        {},
        lambda x: (1 + x.exp()).log(),
    ),
    "tanh": (
        aten.tanh.default,
        (torch.tensor([1e-5, -2e-4, 50.0]),),
        {},
        lambda x: ((2 * x).exp() - 1) / ((2 * x).exp() + 1),
    ),
    "asinh": (aten.asinh.default, (torch.tensor([1e-5, -300.0, 2e-4]),), {}, naive_asinh),
    "atanh": (
        aten.atanh.default,
        (torch.tensor([1e-5, -2e-4, 0.5]),),
        {},
        lambda x: ((1 + x) / (1 - x)).log() / 2,
    ),
    "xlog1py": (
        aten.special_xlog1py.default,
        (torch.tensor([2.0, -1e3, 0.0, 1.0]), SMALL),
        {},
        lambda x, y: x * (1 + y).log(),
    ),
    "log_ndtr": (
        aten.special_log_ndtr.default,
        (torch.tensor([-1.0, -14.5, -20.0]),),
        {},
        lambda x: torch.special.ndtr(x).log(),
    ),
    "log_sigmoid": (
        aten.log_sigmoid.default,
        (torch.tensor([20.0, 60.0, -200.0]),),
        {},
        lambda x: (1 / (1 + (-x).exp())).log(),
    ),
    "sinh": (aten.sinh.default, (SMALL,), {}, lambda x: (x.exp() - (-x).exp()) / 2),
    "layer_norm": (
        aten.native_layer_norm.default,
        (SHIFTED, [4], None, None, 1e-5),
        {},
        naive_layer_norm,
    ),
}


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", TRAPS)
def test_the_formula_of_the_textbook_is_rejected(name):
    op, args, kwargs, formula = TRAPS[name]
    want = op(*args, **kwargs)
    want = [*want] if isinstance(want, tuple) else [want]
    (error, *_) = OneOp(op, args, kwargs).compare(
        [formula(*args, **kwargs).to(want[0].dtype), *want[1:]], want
    )
    assert not error.ok, f"{name} accepts its textbook formula: {error}"


class All(torch.nn.Module):
    def forward(self, *inputs):
        given = iter(inputs)

        def placed(argument):
            return next(given) if isinstance(argument, torch.Tensor) else argument

        return [first(op(*map(placed, args), **kwargs)) for op, args, kwargs, _ in TRAPS.values()]


@pytest.fixture(scope="module")
def converted():
    feeds = [a for _, args, _, _ in TRAPS.values() for a in args if isinstance(a, torch.Tensor)]
    exported = torch.export.export(All(), tuple(f.clone() for f in feeds))
    exported = exported.run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    names = exported.graph_signature.user_inputs
    runs = {}
    for optimized in (False, True):
        if optimized:
            program.optimize()
        got = runtime.run(program, dict(zip(names, feeds, strict=True))).values()
        runs[optimized] = dict(zip(TRAPS, got, strict=True))
    return runs


@pytest.mark.parametrize("optimized", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", TRAPS)
def test_the_converted_op_is_as_accurate_as_torch(name, optimized, converted):
    op, args, kwargs, _ = TRAPS[name]
    want = op(*args, **kwargs)
    want = [*want] if isinstance(want, tuple) else [want]
    (error, *_) = OneOp(op, args, kwargs).compare([converted[optimized][name], *want[1:]], want)
    assert error.ok, f"{name}: {error}"
    assert math.isfinite(error.max_abs)
