"""Recognition of RMSNorm in the forms that models use, and near misses."""

from __future__ import annotations

import re

import pytest
import torch
from compat.programs import composites, externalized
from lazy_import import lazy_import
from passes.recognized import Plain, Several, assert_runs_as, check_recognition, converted, why
from torch import nn

from coreai_torch import ExternalizeSpec
from coreai_torch.composite_ops import RMSNorm, RMSNormImpl

Gemma3RMSNorm = lazy_import("transformers.models.gemma3.modeling_gemma3", "Gemma3RMSNorm")
GptOssRMSNorm = lazy_import("transformers.models.gpt_oss.modeling_gpt_oss", "GptOssRMSNorm")
LlamaRMSNorm = lazy_import("transformers.models.llama.modeling_llama", "LlamaRMSNorm")

SLOW = pytest.mark.slow
FLOATS = [torch.float32, pytest.param(torch.float16, marks=SLOW), torch.bfloat16]
WEIGHT = torch.linspace(0.5, 1.5, 8)


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def _library(cls):
    norm = cls(8, eps=1e-6)
    with torch.no_grad():
        norm.weight.copy_(WEIGHT)
    return norm


def _mean_square(x):
    return x.float().pow(2).mean(-1, keepdim=True) + 1e-6


def _from_function(function):
    return Plain(function, weight=WEIGHT.clone())


FORMS = {
    "llama": lambda: _library(LlamaRMSNorm),
    "gemma": lambda: _library(Gemma3RMSNorm),
    "gpt_oss": lambda: _library(GptOssRMSNorm),
    "divided": lambda: _from_function(
        lambda m, x: (x.float() / torch.sqrt(_mean_square(x))).to(x.dtype) * m.weight
    ),
    "power": lambda: _from_function(
        lambda m, x: ((x.float() * _mean_square(x).pow(-0.5)) * m.weight.float()).to(x.dtype)
    ),
    "reciprocal": lambda: _from_function(
        lambda m, x: m.weight * (x.float() * _mean_square(x).sqrt().reciprocal()).to(x.dtype)
    ),
    "promoted": lambda: _from_function(  # diffusers: the product casts the input
        lambda m, x: (x * torch.rsqrt(_mean_square(x))).to(x.dtype) * m.weight
    ),
    "squared": lambda: _from_function(
        lambda m, x: (
            m.weight
            * (x.float() * torch.rsqrt((x.float() * x.float()).mean(-1, True) + 1e-6)).to(x.dtype)
            if x.dtype != torch.float32
            else m.weight * (x * torch.rsqrt((x * x).mean(-1, True) + 1e-6))
        )
    ),
    "unscaled": lambda: Plain(lambda m, x: (x.float() * torch.rsqrt(_mean_square(x))).to(x.dtype)),
    "gated": lambda: _from_function(  # the gate is not a weight
        lambda m, x: (x.float() * torch.rsqrt(_mean_square(x))).to(x.dtype) * x.sigmoid()
    ),
    "per_head": lambda: Plain(
        lambda m, x: m.weight * (x.float() * torch.rsqrt(_mean_square(x))).to(x.dtype),
        weight=torch.stack([WEIGHT, -WEIGHT, WEIGHT * 2]).unsqueeze(1),
    ),
    "kept_wide": lambda: _from_function(
        lambda m, x: x.float() * torch.rsqrt(_mean_square(x)) * m.weight.float()
    ),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_form_is_recognized_as_norm(dtype):
    model = Several({name: spelled() for name, spelled in FORMS.items()}).to(dtype)
    report = check_recognition(model, drawn(2, 3, 5, 8, dtype=dtype))
    assert [(row.composite, row.path) for row in report.found] == [
        ("rms_norm", f"models.{name}") for name in FORMS
    ]
    assert not report.missed


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_norm_with_dynamic_batch_and_length_runs(dtype):
    model = nn.Sequential(*map(_library, (LlamaRMSNorm, Gemma3RMSNorm, GptOssRMSNorm))).to(dtype)
    sizes = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", max=64)}
    x = drawn(2, 5, 8, dtype=dtype)
    program, report = converted(model, x, dynamic_shapes=(sizes,))
    assert [(row.composite, row.path) for row in report.found] == [
        ("rms_norm", "0"),
        ("rms_norm", "1"),
        ("rms_norm", "2"),
    ]
    assert_runs_as(program, model, (x,), (drawn(3, 7, 8, dtype=dtype),))


@pytest.mark.parametrize("dtype", FLOATS[::2], ids=str)
def test_composite_equals_the_module(dtype):
    x = drawn(2, 3, 8, dtype=dtype)
    theirs, _ = converted(_library(LlamaRMSNorm).to(dtype), x)
    ours = externalized(
        RMSNorm(8, eps=1e-6).to(dtype),
        x,
        modules=[ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps", "version"])],
    )
    (mine,), (wanted,) = composites(theirs, "rms_norm"), composites(ours, "rms_norm")
    assert (mine.inputs, mine.outputs, mine.attrs) == (wanted.inputs, wanted.outputs, wanted.attrs)
    assert mine.private
    assert mine.noinline


@pytest.mark.slow
def test_dynamic_width():
    model = FORMS["unscaled"]()
    x = drawn(2, 3, 8)
    program, report = converted(
        model, x, dynamic_shapes=(({2: torch.export.Dim("width", max=64)},),)
    )
    assert report.counts == {"rms_norm": 1}
    assert_runs_as(program, model, (x,), (drawn(2, 3, 5),))


def test_torch_norm_is_reported_as_kept():
    model = nn.RMSNorm(8, eps=1e-6)
    report = check_recognition(model, drawn(2, 3, 8))
    assert report.counts == {"rms_norm": 1}
    assert report.found[0].kept


def _two_readers(m, x):
    root = torch.rsqrt(_mean_square(x))
    return x * root, root


def _normed_elsewhere(m, x):
    mean = x.pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + 1e-6), mean


NEAR_MISSES = {
    "axis": (
        lambda m, x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6),
        r"the mean is over axes \[1\] of 3, not the last",
    ),
    "axes": (
        lambda m, x: x * torch.rsqrt(x.pow(2).mean((1, 2), keepdim=True) + 1e-6),
        r"the mean is over axes \[1, 2\] of 3, not the last",
    ),
    "keepdim": (
        lambda m, x: x * torch.rsqrt(x.pow(2).mean(-1) + 1e-6).unsqueeze(-1),
        "the mean drops its axis",
    ),
    "epsilon": (
        lambda m, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + x[:1, :1, :1].abs()),
        "the summand of the mean square is not a constant",
    ),
    "other": (
        lambda m, x: x.sin() * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        "scales another tensor than that of the mean square",
    ),
    "readers": (_two_readers, r"the inverse root is read by %mul_\d+, %output"),
    "inside": (
        _normed_elsewhere,
        r"%mean_\d+, inside of it, is read by the caller, who gets it as an output or state, too",
    ),
}


def test_near_misses_are_reported_and_unchanged():
    model = Several({name: Plain(function) for name, (function, _) in NEAR_MISSES.items()})
    report = check_recognition(model, drawn(2, 3, 8, dtype=torch.float32))
    assert report.counts == {}
    reasons = {row.path.removeprefix("models."): row.why for row in report.missed}
    assert reasons.keys() == NEAR_MISSES.keys()
    for name, (_, reason) in NEAR_MISSES.items():
        assert re.search(reason, reasons[name])


def test_half_precision_statistics_are_not_recognized():
    model = Plain(lambda m, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    report = check_recognition(model, drawn(2, 3, 8, dtype=torch.bfloat16))
    assert report.counts == {}
    assert why(report, "rms_norm") == ("the mean square is taken in torch.bfloat16, not in float32")
