"""Batch norms are fused into the convolution before them."""

import pytest
import torch
from pass_graphs import pass_graph, targets

from coreai_torch.passes.dead_code import dead_code
from coreai_torch.passes.fold_constants import fold_constants
from coreai_torch.passes.fuse_batch_norm import fuse_batch_norm


def network(dtype=torch.float32):
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
    model = torch.nn.Sequential(*layers).eval().to(dtype)
    with torch.no_grad():
        model[1].running_mean.uniform_(-1, 1)
        model[1].running_var.uniform_(0.5, 2)
    return model


def fused(model, x, **settings):
    graph, build = pass_graph(model, x, **settings)
    return fuse_batch_norm(fold_constants(dead_code(graph))), build


def test_a_fused_convolution_computes_what_both_did():
    model, x = network(), torch.randn(1, 3, 5, 5)
    graph, _build = fused(model, x)
    assert "convolution.default" not in targets(graph)
    (found,) = graph.fused.values()
    want = model(x)
    got = torch.nn.functional.conv2d(x, found.weight, found.bias)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_half_precision_is_not_fused():
    graph, _build = fused(network(torch.float16), torch.randn(1, 3, 5, 5, dtype=torch.float16))
    assert not graph.fused


@pytest.mark.parametrize("op", ["convolution", "batch_norm"])
def test_an_op_that_a_user_lowers_is_not_fused(op):
    graph, _build = fused(
        network(), torch.randn(1, 3, 5, 5), is_custom=lambda node: op in str(node.target)
    )
    assert not graph.fused
    assert "convolution.default" in targets(graph)
