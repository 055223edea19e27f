"""Each op that a textbook formula computes badly has a case that rejects the formula.

A formula counts as rejected only if it is right in float64: then its error is one of rounding.
"""

from __future__ import annotations

import math
from pathlib import Path

import case_runner
import pytest
import torch

from coreai_torch.lowering.registry import BUILTIN, key
from coreai_torch.numerics.float64 import widened
from coreai_torch.numerics.noise import map_leaves

aten = torch.ops.aten


def variance(x, dim=None, *, correction=1.0, keepdim=False):
    axes = list(range(x.dim())) if dim is None else dim
    count = math.prod(x.shape[a] for a in axes)
    mean, square = x.mean(axes, keepdim=keepdim), (x * x).mean(axes, keepdim=keepdim)
    return (square - mean * mean) * count / (count - (1 if correction is None else correction))


def layer_norm(x, shape, weight, bias, eps):
    axes = list(range(-len(shape), 0))
    mean, square = x.mean(axes, keepdim=True), (x * x).mean(axes, keepdim=True)
    result = (x - mean) / (square - mean * mean + eps).sqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def softmax(x, dim, half):
    return x.exp() / x.exp().sum(dim, keepdim=True)


FORMULAS = {
    aten.log1p.default: lambda x: (1 + x).log(),
    aten.expm1.default: lambda x: x.exp() - 1,
    aten.logsumexp.default: lambda x, dim, keepdim=False: x.exp().sum(dim, keepdim).log(),
    aten._softmax.default: softmax,
    aten._log_softmax.default: lambda x, dim, half: softmax(x, dim, half).log(),
    aten.logaddexp.default: lambda x, y: (x.exp() + y.exp()).log(),
    aten.logaddexp2.default: lambda x, y: (x.exp2() + y.exp2()).log2(),
    aten.logcumsumexp.default: lambda x, dim: x.exp().cumsum(dim).log(),
    aten.var.correction: variance,
    aten.std.correction: lambda x, *a, **k: variance(x, *a, **k).sqrt(),
    aten.var_mean.correction: variance,
    aten.std_mean.correction: lambda x, *a, **k: variance(x, *a, **k).sqrt(),
    aten.native_layer_norm.default: layer_norm,
    aten.hypot.default: lambda x, y: (x * x + y * y).sqrt(),
    aten.abs.default: lambda x: (x.real * x.real + x.imag * x.imag).sqrt(),
    aten.erfc.default: lambda x: 1 - x.erf(),
    aten.special_erfcx.default: lambda x: (x * x).exp() * torch.erfc(x),
    aten.special_i0e.default: lambda x: (-x.abs()).exp() * torch.i0(x),
    aten.sigmoid.default: lambda x: 1 - 1 / (1 + x.exp()),
    aten.softplus.default: lambda x: (1 + x.exp()).log(),
    aten.tanh.default: lambda x: ((2 * x).exp() - 1) / ((2 * x).exp() + 1),
    aten.asinh.default: lambda x: (x + (x * x + 1).sqrt()).log(),
    aten.atanh.default: lambda x: ((1 + x) / (1 - x)).log() / 2,
    aten.sinh.default: lambda x: (x.exp() - (-x).exp()) / 2,
    aten.lgamma.default: lambda x: torch.lgamma(x).exp().log(),
}


def applied(op, formula, args, kwargs):
    """Return the results of the op, and the same with the first one from the formula."""
    want = case_runner.listed(op(*args, **kwargs))
    return want, [formula(*args, **kwargs).to(want[0].dtype), *want[1:]]


def is_right_in_float64(op, formula, args, kwargs):
    """Return whether op and formula agree for at least half of the elements in float64."""
    args, kwargs = map_leaves((tuple(args), kwargs), widened)
    want, got = (results[0] for results in applied(op, formula, args, kwargs))
    close = torch.isclose(got, want, rtol=1e-4, atol=1e-9, equal_nan=True)
    return want.is_floating_point() and bool(close.double().mean() >= 0.5)


def rejects(op, formula, case):
    """Return whether the comparison of a case rejects the formula."""
    model = case_runner.CaseModel(op, case)
    args = [model._given(a, model.feeds) for a in model.args]
    kwargs = {k: model._given(v, model.feeds) for k, v in model.kwargs.items()}
    try:
        want, got = applied(op, formula, args, kwargs)
        if not is_right_in_float64(op, formula, args, kwargs):
            return False
    except (TypeError, RuntimeError):  # an argument that the formula ignores
        return False
    try:
        case_runner.judge([(want, got)] * 2, case, model)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("op", FORMULAS, ids=lambda op: op.name().removeprefix("aten::"))
def test_a_case_rejects_the_formula(op):
    entry = BUILTIN.get(key(op))
    assert entry is not None
    assert any(rejects(op, FORMULAS[op], case) for case in entry.cases)


def test_page_lists_the_reason_of_every_tolerance():
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    reasons = {c.because for e in BUILTIN for c in e.cases if c.tolerance is not None}
    assert [reason for reason in reasons if reason not in page] == []
