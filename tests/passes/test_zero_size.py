"""Zero sizes: nodes whose operands or results may have no elements are marked."""

import torch
from pass_graphs import pass_graph

from coreai_torch.passes.dead_code import dead_code
from coreai_torch.passes.fold_constants import fold_constants
from coreai_torch.passes.zero_size import zero_size

AUTO = torch.export.Dim.AUTO


def marks(model, *args, **settings):
    graph, build = pass_graph(model, *args, **settings)
    graph = zero_size(fold_constants(dead_code(graph)))
    found = {node.name: "may be empty" for node in graph.may_be_empty}
    found.update((node.name, str(empty)) for node, empty in graph.replaced.items())
    return found, build


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
    assert found["sin"] == "may be empty"


def test_results_and_operands_that_are_always_empty_are_marked():
    found, _build = marks(NoColumns(), torch.ones(3, 4), dynamic_shapes=({0: AUTO},))
    assert found["sin"] == "empty results"
    (total,) = (facts for name, facts in found.items() if name.startswith("sum"))
    assert total == "empty operands"
