"""Batch norms and products with a number for each channel are fused into the layer before."""

import copy

import pytest
import runtime
import torch
from pass_graphs import pass_graph, targets

import coreai_torch
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
    (found,) = graph.replaced.values()
    want = model(x)
    got = torch.nn.functional.conv2d(x, found.weight, found.bias)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrow_convolution_is_fused_with_one_rounding(dtype):
    model = network(dtype)
    graph, _build = fused(model, torch.randn(1, 3, 5, 5, dtype=dtype))
    (found,) = graph.replaced.values()
    assert found.weight.dtype == found.bias.dtype == dtype
    convolution, norm = copy.deepcopy(model).double()
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    product = convolution.weight * scale.view(-1, 1, 1, 1)
    summand = (convolution.bias - norm.running_mean) * scale + norm.bias
    # Two roundings would differ in one of 20 elements.
    assert torch.equal(found.weight, product.to(dtype))
    assert torch.equal(found.bias, summand.to(dtype))


def test_a_narrow_convolution_with_a_float32_norm_is_fused():
    model = network(torch.float16)
    model[1].float()
    graph, _build = fused(model, torch.randn(1, 3, 5, 5, dtype=torch.float16))
    (found,) = graph.replaced.values()
    assert found.weight.dtype == torch.float16


@pytest.mark.parametrize(("name", "value"), [("weight", 60000.0), ("weight", 1e-7), ("bias", 6e4)])
def test_a_product_that_float16_cannot_hold_is_not_fused(name, value):
    model = network(torch.float16)
    with torch.no_grad():
        model[1].running_var.fill_(0.05)
        model[1].running_mean.fill_(-5e3)
        getattr(model[1], name).fill_(value)
    graph, _build = fused(model, torch.randn(1, 3, 5, 5, dtype=torch.float16))
    assert not graph.replaced


@pytest.mark.parametrize("op", ["convolution", "batch_norm"])
def test_an_op_that_a_user_lowers_is_not_fused(op):
    graph, _build = fused(
        network(), torch.randn(1, 3, 5, 5), is_custom=lambda node: op in str(node.target)
    )
    assert not graph.replaced
    assert "convolution.default" in targets(graph)


class Scaled(torch.nn.Module):
    """A convolution, its norm and a scale for each channel, as in LayerScale."""

    def __init__(self, size=4):
        super().__init__()
        self.layers = network()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 2, size).view(-1, 1, 1))

    def forward(self, x):
        return self.layers(x) * self.scale


def test_a_product_with_a_number_for_each_channel_is_fused_too():
    model, x = Scaled().eval(), torch.randn(1, 3, 5, 5)
    graph, _build = fused(model, x)
    assert not {"convolution.default", "_native_batch_norm_legit_no_training.default"} & set(
        targets(graph)
    )
    ((last, found),) = graph.replaced.items()
    assert last.target is torch.ops.aten.mul.Tensor
    got = torch.nn.functional.conv2d(x, found.weight, found.bias)
    torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-5)


def test_a_product_behind_a_dropout_is_fused():
    model, x = Scaled().eval(), torch.randn(1, 3, 5, 5)
    model.layers.append(torch.nn.Dropout())
    graph, _build = fused(model.eval(), x)
    assert not {"convolution.default", "clone.default"} & set(targets(graph))
    ((last, found),) = graph.replaced.items()
    assert last.target is torch.ops.aten.mul.Tensor
    got = torch.nn.functional.conv2d(x, found.weight, found.bias)
    torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-5)


def test_a_product_with_another_shape_is_not_fused():
    class Wide(Scaled):
        def forward(self, x):
            return self.layers(x) * self.scale.view(1, 1, 1, -1)

    graph, _build = fused(Wide(3).eval(), torch.randn(1, 3, 5, 5))
    (last,) = graph.replaced
    assert "batch_norm" in str(last.target)


class Tokens(torch.nn.Module):
    """A linear layer whose norm takes all tokens as one batch."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 4, bias=False)
        self.norm = torch.nn.BatchNorm1d(4)
        self.norm.load_state_dict(network()[1].state_dict())

    def forward(self, x):
        return self.norm(self.linear(x).flatten(0, 1)).view(2, 3, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_norm_after_a_linear_layer_is_fused_through_a_view(dtype):
    model, x = Tokens().eval().to(dtype), torch.randn(2, 3, 6, dtype=dtype)
    graph, _build = fused(model, x)
    (found,) = graph.replaced.values()
    assert found.layer.target is torch.ops.aten.linear.default
    got = torch.nn.functional.linear(x, found.weight, found.bias)
    limit = 1e-5 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(got, model(x), rtol=limit, atol=limit)


@pytest.mark.parametrize(("model", "shape"), [(Scaled, (1, 3, 5, 5)), (Tokens, (2, 3, 6))])
def test_the_program_of_a_fused_layer_computes_what_the_model_does(model, shape):
    model, x = model().eval(), torch.randn(shape)
    program = coreai_torch.convert(model, (x,), verify=False)
    assert "batch_norm" not in str(program)
    (got,) = runtime.run(program, {"x": x}).values()
    torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-5)
