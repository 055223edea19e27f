"""Names and ranges of dynamic sizes are stored in an asset and shown."""

from __future__ import annotations

import json

import pytest
import torch
from torch.export import Dim

import coreai_torch
from coreai_torch.asset.program import stripped
from coreai_torch.report import html_page, summarize


class Twice(torch.nn.Module):
    def forward(self, x, y):
        return torch.cat([x, x]), y * 2


@pytest.fixture(scope="module")
def program():
    batch = Dim("batch", min=1, max=8)
    shapes = {"x": {0: batch}, "y": {0: Dim.DYNAMIC}}
    inputs = torch.ones(2, 3), torch.ones(4)
    return coreai_torch.convert(
        Twice(), inputs, dynamic_shapes=shapes, output_names=["twice", "z"], verify=False
    )


def shown(source) -> list[str]:
    (function,) = summarize(source).functions
    return [str(port) for port in (*function.inputs, *function.outputs)]


def test_program_shows_names_and_ranges(program):
    x, y, twice, z = shown(program)
    assert (x, twice) == ("x: f32[batch 1..8, 3]", "twice: f32[2*batch 2..16, 3]")
    assert y.startswith("y: f32[")
    assert y.endswith(" 2..]")
    assert z.removeprefix("z") == y.removeprefix("y")


def test_ranges_survive_optimize_save_and_strip(program, tmp_path):
    program.optimize()
    asset, small = tmp_path / "net.aimodel", tmp_path / "small.aimodel"
    program.save_asset(asset)
    stripped(asset, small)
    assert shown(asset) == shown(small) == shown(program)
    assert "batch 1..8" in html_page(small)


def test_static_program_stores_no_ranges(tmp_path):
    converted = coreai_torch.convert(torch.nn.ReLU(), (torch.ones(2),), verify=False)
    converted.save_asset(tmp_path / "net.aimodel")
    stored = json.loads((tmp_path / "net.aimodel" / "metadata.json").read_text())
    assert "coreai_torch.sizes" not in stored.get("creatorDefinedMetadata", {})


def test_metadata_of_others_is_ignored(program, tmp_path):
    program.save_asset(tmp_path / "net.aimodel", {"coreai_torch.sizes": "no JSON"})
    assert shown(tmp_path / "net.aimodel")[0] == "x: f32[?, 3]"


def test_size_of_zero_is_static():
    class Empty(torch.nn.Module):
        def forward(self, x):
            return x[:, :0].sum(1), x

    shapes = ({0: Dim("batch", min=1, max=8)},)
    program = coreai_torch.convert(
        Empty(), (torch.ones(2, 3),), dynamic_shapes=shapes, verify=False
    )
    assert shown(program)[0] == "x: f32[batch 1..8, 3]"
