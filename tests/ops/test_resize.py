"""Interpolation in every mode over many sizes, exported at one size and run at others."""

from __future__ import annotations

import pytest
import runtime
import torch
from case_runner import compare

import coreai_torch

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
