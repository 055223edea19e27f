"""Differences between the graphs of two programs."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.debugging.graph_diff import (
    compute_coreai_program_diff,
    compute_exported_program_diff,
    write_diff,
)


class Net(nn.Module):
    def __init__(self, activation):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.activation = nn.Linear(4, 6), nn.Linear(6, 3), activation

    def forward(self, x):
        return self.second(self.activation(self.first(x))).exp()


def swapped(x):
    return torch.sigmoid(torch.tanh(x))


def straight(x):
    return torch.tanh(torch.sigmoid(x))


def exported(activation):
    program = torch.export.export(Net(activation), (torch.ones(2, 4),))
    return program.run_decompositions(get_decomp_table())


def converted(program, *, optimize=False):
    made = TorchConverter(mode=TorchConverter.Mode.DEBUG).add_exported_program(program).to_coreai()
    if optimize:
        made.optimize()
    return made


@pytest.fixture(scope="module")
def relu():
    return exported(torch.relu)


@pytest.fixture(scope="module")
def gelu():
    return exported(torch.nn.functional.gelu)


def test_the_same_model_is_isomorphic(relu):
    again = exported(torch.relu)
    diff = compute_exported_program_diff(relu, again)
    assert diff.is_isomorphic
    assert diff.summary.startswith("isomorphic: ")
    assert len(diff.source_graph) == len(diff.target_graph) == len(diff.pairs)
    diff = compute_coreai_program_diff(converted(relu), converted(again, optimize=True))
    assert diff.is_isomorphic
    assert not diff.weights


def test_a_replaced_op_is_reported_on_both_sides(relu, gelu):
    for diff in (
        compute_exported_program_diff(relu, gelu),
        compute_coreai_program_diff(converted(relu), converted(gelu)),
    ):
        assert not diff.is_isomorphic
        assert ["relu" in o.op for o in diff.only_in_source] == [True]
        assert ["gelu" in o.op for o in diff.only_in_target] == [True]
        assert len(diff.rewired) == 1  # the op that takes the result


def test_the_same_ops_in_another_order_are_not_isomorphic():
    diff = compute_coreai_program_diff(converted(exported(straight)), converted(exported(swapped)))
    assert not diff.is_isomorphic


def test_changed_weights_are_isomorphic_and_reported(relu):
    model = Net(torch.relu)
    with torch.no_grad():
        model.second.bias += 1
    other = torch.export.export(model, (torch.ones(2, 4),)).run_decompositions(get_decomp_table())
    diff = compute_coreai_program_diff(converted(relu), converted(other))
    assert diff.is_isomorphic
    ((before, after),) = diff.weights
    assert before.types == after.types == ("tensor<3xf32>",)
    assert "1 weights with different values" in diff.summary


def test_write_diff_writes_text_and_html(relu, gelu, tmp_path):
    diff = compute_exported_program_diff(relu, gelu)
    stream = io.StringIO()
    write_diff(diff, stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == diff.summary
    assert [line[:7] for line in lines[2:] if line[:2] in ("- ", "+ ")] == ["- relu ", "+ gelu "]
    write_diff(diff, tmp_path / "diff.txt")
    assert (tmp_path / "diff.txt").read_text() == stream.getvalue()
    write_diff(diff, tmp_path / "pages" / "diff.html")
    page = (tmp_path / "pages" / "diff.html").read_text()
    assert '<span class="removed">- relu' in page
    assert "-&gt; float32[2x6]" in page
