"""Grid sampling at sizes other than the exported ones, and grids with NaN and infinities."""

from __future__ import annotations

import itertools

import pytest
import runtime
import torch
from case_runner import compare

import coreai_torch

F = torch.nn.functional
_WAYS = [
    *itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
    )
]
_NAN, _INF = float("nan"), float("inf")
_WILD = (_NAN, 0.5, _INF, -0.2, -_INF, 3.0, -1.0, 1.0, _NAN, _NAN, 1e20, 77.7, 2.2, -2.7, 5e9, 0.0)


class _EveryWay(torch.nn.Module):
    def forward(self, x, grid):
        return [
            F.grid_sample(x, grid, mode, padding, align_corners=align)
            for mode, padding, align in _WAYS
        ]


class _Turned(torch.nn.Module):
    def forward(self, x, theta):
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=True))


def _program(model, feeds, dynamic=None):
    exported = torch.export.export(model, feeds, dynamic_shapes=dynamic)
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    return coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()


def _compare(program, x, grid):
    got = runtime.run(program, {"x": x, "grid": grid})
    for found, want in zip(got.values(), _EveryWay()(x, grid), strict=True):
        compare(found, want)


def test_nan_and_infinite_positions():
    x, grid = torch.randn(1, 2, 4, 5), torch.tensor(_WILD).reshape(1, 2, 4, 2)
    _compare(_program(_EveryWay(), (x, grid)), x, grid)


def test_every_mode_at_other_sizes():
    auto = torch.export.Dim.AUTO
    dynamic = (dict.fromkeys((0, 1, 2, 3), auto), dict.fromkeys((0, 1, 2), auto))
    x, grid = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 6, 2)
    program = _program(_EveryWay(), (x, grid), dynamic)
    _compare(program, x, grid)
    _compare(program, torch.randn(3, 2, 7, 6), torch.randn(3, 4, 5, 2))


@pytest.mark.filterwarnings("ignore:Default grid_sample")
def test_sizes_that_export_made_static_stay_static():
    """Torch calls `linspace` for an affine grid, which makes its sizes static."""
    auto = torch.export.Dim.AUTO
    dynamic = (dict.fromkeys((0, 1, 2, 3), auto), {0: auto})
    program = _program(_Turned(), (torch.randn(2, 3, 4, 5), torch.randn(2, 2, 3)), dynamic)
    assert "%arg0: tensor<?x?x4x5xf32>" in str(program)
