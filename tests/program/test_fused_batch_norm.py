"""A batch norm after a convolution with constant weights is fused into it."""

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from tests.runtime import run


def _randomised(model):
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.uniform_(-2, 2)
            module.running_var.uniform_(0.1, 3)
            if module.affine:
                nn.init.uniform_(module.weight, -2, 2)
                nn.init.uniform_(module.bias, -1, 1)
    return model.eval()


def _converted(model, *args, converter=None):
    program = torch.export.export(model, args).run_decompositions(get_decomp_table())
    return (converter or TorchConverter()).add_exported_program(program).to_coreai()


MERGED = {
    "with bias": (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), (1, 3, 8, 8)),
    "without bias": (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), (2, 3, 8, 8)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6, eps=0.5), (1, 4, 5, 5)),
    "not affine": (nn.Conv1d(3, 4, 3, dilation=2), nn.BatchNorm1d(4, affine=False), (1, 3, 9)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, 2), nn.BatchNorm2d(4), (1, 3, 5, 5)),
    "volumes": (nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3), (1, 2, 4, 4, 4)),
}


@pytest.mark.parametrize("name", MERGED)
def test_fused_result_equals_torch(name):
    convolution, norm, shape = MERGED[name]
    model, x = _randomised(nn.Sequential(convolution, norm, nn.ReLU())), torch.randn(shape)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    program = _converted(model, x)
    assert "batch_norm" not in str(program)
    for optimized in (False, True):
        if optimized:
            program.optimize()
        (output,) = run(program, {"input": x}).values()
        torch.testing.assert_close(output, model(x), rtol=1e-5, atol=1e-5)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


class _ReadTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.convolution(x)
        return self.norm(y) + y


class _GivenWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x, weight):
        return self.norm(nn.functional.conv2d(x, weight))


def _with_infinite_scale():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    _randomised(model)[1].weight.data[0] = float("inf")
    return model


WEIGHT = torch.randn(4, 3, 3, 3)
APART = {
    "the convolution is read elsewhere": (_ReadTwice(), ()),
    "the weight is an input": (_GivenWeight(), (WEIGHT,)),
    "groups transposed": (
        nn.Sequential(nn.ConvTranspose2d(3, 6, 3, groups=3), nn.BatchNorm2d(6)),
        (),
    ),
    "an infinite scale": (_with_infinite_scale(), ()),
}


@pytest.mark.parametrize("name", APART)
def test_is_not_fused(name):
    model, rest = APART[name]
    x = torch.randn(1, 3, 6, 6)
    assert "batch_norm" in str(_converted(model.eval(), x, *rest))


def test_half_precision_is_fused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).half().eval()
    assert "batch_norm" not in str(_converted(model, torch.randn(1, 3, 6, 6).half()))


def test_batch_norm_with_a_registered_lowering_is_not_fused():
    converter = TorchConverter()
    seen = []

    @converter.register_torch_lowering(
        "aten::_native_batch_norm_legit_no_training", allow_override=True
    )
    def norm(values_map, node, loc):
        seen.append(node.name)
        return [values_map[node.args[0].name], None, None]

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    _converted(model, torch.randn(1, 3, 6, 6), converter=converter)
    assert len(seen) == 1
