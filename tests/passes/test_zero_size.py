"""Zero sizes: nodes whose operands or results may have no elements are marked."""

import torch
from pass_graphs import pass_graph

from coreai_torch.passes.dead_code import dead_code
from coreai_torch.passes.fold_constants import fold_constants
from coreai_torch.passes.graph import ZeroSize
from coreai_torch.passes.zero_size import zero_size

AUTO = torch.export.Dim.AUTO


def marks(model, *args, **settings):
    graph, build = pass_graph(model, *args, **settings)
    graph = zero_size(fold_constants(dead_code(graph)))
    return {node.name: facts for node, facts in graph.zero_sizes.items()}, build


class Sine(torch.nn.Module):
    def forward(self, x):
        return x.sin()


class Selected(torch.nn.Module):
    def forward(self, x):
        return x[x > 9].sin()


class NoColumns(torch.nn.Module):
    def forward(self, x):
        return x[:, :0].sin(), x[:, :0].sum(1)


def test_a_static_graph_has_no_marks():
    assert marks(Sine(), torch.ones(3))[0] == {}


def test_a_plain_dynamic_size_is_never_zero():
    assert marks(Sine(), torch.ones(3), dynamic_shapes=({0: AUTO},))[0] == {}


def test_a_size_that_depends_on_data_may_be_zero():
    found, _build = marks(Selected(), torch.ones(3))
    assert found["sin"] == ZeroSize.POSSIBLE


def test_results_and_operands_that_are_always_empty_are_marked():
    found, _build = marks(NoColumns(), torch.ones(3, 4), dynamic_shapes=({0: AUTO},))
    assert ZeroSize.RESULTS in found["sin"]
    (total,) = (facts for name, facts in found.items() if name.startswith("sum"))
    assert ZeroSize.OPERANDS in total
    assert ZeroSize.RESULTS not in total
