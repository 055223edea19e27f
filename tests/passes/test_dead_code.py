"""Dead code: calls that no result depends on are dropped."""

import torch
from pass_graphs import pass_graph, targets

from coreai_torch.passes.dead_code import dead_code


class Wasteful(torch.nn.Module):
    def forward(self, x):
        torch.ops.aten._assert_async.msg(x.sum() > -1e9, "an assertion computes no result")
        x.sin().cos()
        return x + 1


def test_calls_that_no_result_depends_on_are_dropped():
    graph, _build = pass_graph(Wasteful(), torch.ones(3))
    assert "sum.dim_IntList" in targets(graph) or "sum.default" in targets(graph)
    assert targets(dead_code(graph)) == ["add.Tensor"]


def test_the_fx_graph_is_left_as_it_was():
    graph, _build = pass_graph(Wasteful(), torch.ones(3))
    before = str(graph.module.graph)
    after = dead_code(graph)
    assert str(after.module.graph) == before
    assert after.module is graph.module
