"""Exported programs that another version of torch saved convert to the same numbers."""

import re
from pathlib import Path

import pytest
import runtime
import torch

import coreai_torch

FILES = sorted((Path(__file__).parents[1] / "data").glob("*.pt2"))
RELEASE = tuple(map(int, re.match(r"(\d+)\.(\d+)", torch.__version__).groups()))


def saved_by(path):
    return tuple(map(int, re.search(r"torch-(\d+)\.(\d+)", path.name).groups()))


def load(path):
    if saved_by(path) > RELEASE:
        pytest.skip(reason=f"torch {torch.__version__} may not load what a later one saved")
    return torch.export.load(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("batch", [2, 5])
def test_saved_program_converts(path, batch):
    exported = load(path)
    (name,) = exported.graph_signature.user_inputs
    generator = torch.Generator().manual_seed(7)
    if name == "x":
        feed, states = torch.randn(batch, 3, 8, 8, generator=generator), {"b_calls": torch.zeros(1)}
    else:
        feed, states = torch.randint(0, 11, (batch, 3), generator=generator), None
    want = exported.module()(feed)
    program = coreai_torch.convert(exported, verify=False)
    got = runtime.run(program, {name: feed}, state=states)
    torch.testing.assert_close(next(iter(got.values())), want, rtol=1e-5, atol=1e-5)


def test_files_of_two_versions_are_there():
    assert {saved_by(path) for path in FILES} == {(2, 11), (2, 15)}
