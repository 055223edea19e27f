"""Interpolation in every mode over many sizes, exported at one size and run at others."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import runtime
import torch
from case_runner import compare
from module_runner import convert, run

import coreai_torch
from coreai_torch.asset.mlir_module import mlir_module_of

F = torch.nn.functional

# Mode, other arguments, rank of the input.
_MODES = [
    ("nearest", {}, 1),
    ("nearest-exact", {}, 1),
    ("linear", {}, 1),
    ("linear", {"align_corners": True}, 1),
    ("nearest", {}, 2),
    ("bilinear", {}, 2),
    ("bilinear", {"antialias": True}, 2),
    ("bilinear", {"antialias": True, "align_corners": True}, 2),
    ("bicubic", {}, 2),
    ("bicubic", {"align_corners": True}, 2),
    ("bicubic", {"antialias": True}, 2),
    ("lanczos", {"antialias": True}, 2),
    ("area", {}, 2),
    ("trilinear", {}, 3),
    ("nearest-exact", {}, 3),
]
_EXPORTED, _OTHER = (7, 10, 5), (12, 9, 4)
_FACTORS = (0.3, 2 / 3, 1.1, 2.2, 3.7)


class _Sizes(torch.nn.Module):
    """Resize to each of several sizes and by each of several factors."""

    def __init__(self, mode, options, spatial):
        super().__init__()
        self.mode, self.options, self.spatial = mode, options, spatial

    def forward(self, x):
        sizes = {
            1: [[n] for n in (1, 2, 3, 7, 8, 13, 29)],
            # No width of 1: with antialias, torch repeats the first row (interpolate(x, (14, 1))).
            2: [(1, 2), (3, 10), (7, 11), (16, 9), (14, 3)],
            3: [(1, 2, 9), (7, 10, 4)],
        }
        by_size = [{"size": list(size)} for size in sizes[self.spatial]]
        by_factor = [{"scale_factor": f} for f in _FACTORS]
        computed = [{"scale_factor": 1.5, "recompute_scale_factor": True}]
        calls = [*by_size, *by_factor, *computed]
        return [F.interpolate(x, mode=self.mode, **call, **self.options) for call in calls]


def _name(value):
    return "-".join(value) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("sizes", ["static", "dynamic"])
@pytest.mark.parametrize(("mode", "options", "spatial"), _MODES, ids=_name)
def test_resize_grid(mode, options, spatial, sizes):
    model, auto = _Sizes(mode, options, spatial), torch.export.Dim.AUTO
    x = torch.randn(2, 2, *_EXPORTED[:spatial])
    dynamic = {0: auto, **{i + 2: auto for i in range(spatial)}} if sizes == "dynamic" else {}
    exported = torch.export.export(model, (x,), dynamic_shapes=(dynamic,))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    feeds = [x] if sizes == "static" else [x, torch.randn(3, 2, *_OTHER[:spatial])]
    for feed in feeds:
        got = runtime.run(program, {"x": feed})
        for found, want in zip(got.values(), model(feed), strict=True):
            compare(found, want)


def test_inexact_scale_factor_with_dynamic_size_is_rejected():
    """In f64, 0.7 * n rounds below an integer for some n and not for others."""
    model, x = torch.nn.Upsample(scale_factor=0.7), torch.randn(1, 1, 10)
    exported = torch.export.export(model, (x,), dynamic_shapes=({2: torch.export.Dim.AUTO},))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    with pytest.raises(coreai_torch.errors.ConversionError, match=r"scaled by 0\.7"):
        coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()


def _ops(function, x):
    return Counter(
        name
        for name in re.findall(
            r"= coreai\.([a-z_.]+)", str(mlir_module_of(convert(function, (x,))))
        )
        if name not in ("constant", "reshape")
    )


_PRODUCT = "decomposable.broadcasting_batch_matmul"


@pytest.mark.parametrize(
    ("mode", "options", "extent", "out", "form"),
    [
        ("nearest", {}, 20, 40, {"broadcast_to": 2, "expand_dims": 2}),
        ("nearest", {}, 20, 10, {"slice": 2}),
        ("nearest", {}, 20, 60, {"broadcast_to": 2, "expand_dims": 2}),
        ("nearest", {}, 50, 37, {_PRODUCT: 2}),
        ("nearest-exact", {}, 50, 37, {_PRODUCT: 2}),
        ("bilinear", {}, 20, 40, {"interpolate": 1}),
        ("bilinear", {}, 20, 30, {"interpolate": 1}),
        ("bilinear", {}, 512, 333, {_PRODUCT: 2}),
        ("bilinear", {}, 1, 33, {"broadcast_to": 2}),
        ("bilinear", {"align_corners": True}, 37, 518, {_PRODUCT: 2}),
        ("bilinear", {"antialias": True}, 96, 50, {_PRODUCT: 2}),
        ("bicubic", {}, 20, 40, {_PRODUCT: 2}),
        ("bicubic", {"antialias": True}, 96, 50, {_PRODUCT: 2}),
    ],
)
def test_the_form_of_a_static_resize(mode, options, extent, out, form):
    x = torch.randn(1, 2, extent, extent)
    found = _ops(lambda x: F.interpolate(x, size=(out, out), mode=mode, **options), x)
    assert found == form


@pytest.mark.parametrize("out", [333, 700, 1024])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_bilinear_of_a_large_image(out, align, dtype):
    x = torch.randn(1, 2, 512, 512).to(dtype)

    def resize(x):
        return F.interpolate(x, size=(out, out), mode="bilinear", align_corners=align)

    program = convert(resize, (x,))
    compare(run(program, (x,))[0], resize(x.float()).to(dtype))
    assert "gather" not in str(mlir_module_of(program))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_resized_by_products(mode):
    x = torch.randint(0, 256, (1, 3, 96, 128), dtype=torch.uint8)

    def resize(x):
        return F.interpolate(x, size=(5, 200), mode=mode, antialias=True)

    program = convert(resize, (x,))
    assert torch.equal(run(program, (x,))[0], resize(x))
    assert "gather" not in str(mlir_module_of(program))
