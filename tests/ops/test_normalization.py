"""Norm modules of torch become one composite each; training mode is rejected."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from module_runner import check, convert, run
from torch import nn

from coreai_torch.errors import UnsupportedArgumentError

AUTO = torch.export.Dim.AUTO


def _trained(module):
    """Set weights and running statistics to other values than the initial ones."""
    generator = torch.Generator().manual_seed(7)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            low = 0.1 if name.endswith("running_var") else -1.0
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) * 2 + low)
    return module.eval()


def _contract(program, name):
    (found,) = re.findall(rf'composite_declaration<"{name}" = \{{(.*?)\}}>', str(program))
    inputs = re.search(r"input_names = \[(.*?)\]", found)[1]
    attributes = re.search(r"op_attrs = \{(.*?)\}", found)[1]
    assert 'output_names = ["output"]' in found
    return inputs.replace('"', "").split(", "), set(re.findall(r"(\w+) = ", attributes))


X4, X3, X2 = torch.randn(2, 4, 5, 6), torch.randn(2, 4, 6), torch.randn(3, 4)
_BATCH = (["input", "gamma", "beta", "mean", "variance"], {"eps", "version"})
_INSTANCE = (["input", "gamma", "beta"], {"eps", "version"})
_LAYER = (["input", "gamma", "beta"], {"axes", "eps", "version"})
_GROUP = (["input", "weight", "bias"], {"num_groups", "num_channels", "eps", "version"})
_RMS = (["input", "scale"], {"axes", "eps", "version"})
MODULES = {
    "batch norm 1d": (nn.BatchNorm1d(4), X2, "batch_norm", _BATCH),
    "batch norm 2d": (nn.BatchNorm2d(4), X4, "batch_norm", _BATCH),
    "batch norm, no weights": (nn.BatchNorm2d(4, affine=False), X4, "batch_norm", _BATCH),
    "batch norm of the batch": (
        nn.BatchNorm2d(4, track_running_stats=False),
        X4,
        "batch_norm",
        _BATCH,
    ),
    "instance norm": (nn.InstanceNorm2d(4), X4, "instance_norm", _INSTANCE),
    "instance norm, weights": (nn.InstanceNorm1d(4, affine=True), X3, "instance_norm", _INSTANCE),
    "instance norm, unbatched": (nn.InstanceNorm1d(4), X3[0], "instance_norm", _INSTANCE),
    "instance norm, tracked": (
        nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        X3,
        "batch_norm",
        _BATCH,
    ),
    "layer norm": (nn.LayerNorm(6), X4, "layer_norm", _LAYER),
    "layer norm over two axes": (nn.LayerNorm((4, 6)), X3, "layer_norm", _LAYER),
    "layer norm, no bias": (nn.LayerNorm(6, bias=False), X3, "layer_norm", _LAYER),
    "group norm": (nn.GroupNorm(2, 4), X4, "group_norm", _GROUP),
    "group norm, no weights": (nn.GroupNorm(4, 4, affine=False), X3, "group_norm", _GROUP),
    "rms norm": (nn.RMSNorm(6), X3, "rms_norm", _RMS),
    "rms norm, no weights": (nn.RMSNorm(6, elementwise_affine=False), X3, "rms_norm", _RMS),
}


@pytest.mark.parametrize("name", MODULES)
def test_norm_is_one_composite_with_all_inputs(name):
    module, x, composite, contract = MODULES[name]
    module = _trained(module)
    assert _contract(convert(module, (x,)), composite) == contract
    check(module, (x,))
    larger = x.repeat(3, *(1 for _ in x.shape[1:]))
    if "unbatched" not in name:
        check(module, (x,), (larger,), dynamic_shapes=({0: AUTO},))


def test_mean_and_rstd_of_native_norms():
    def statistics(x):
        _, mean, rstd = torch.ops.aten.native_layer_norm(x, [6], None, None, 1e-5)
        _, of_groups, _ = torch.ops.aten.native_group_norm(x, None, None, 2, 4, 6, 2, 1e-5)
        return mean * 2, rstd + 1, of_groups - 1

    check(statistics, (X3,))


def test_convolution_before_batch_norm_stays_exact():
    # The pass may fuse the norm into the weights of the convolution.
    check(_trained(nn.Sequential(nn.Conv2d(4, 3, 2), nn.BatchNorm2d(3))), (X4,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_batch_norm_keeps_small_variances(dtype):
    # All variances are subnormal in float16.
    model = nn.Sequential(nn.Conv2d(4, 3, 1, bias=False), nn.BatchNorm2d(3)).eval()
    model[0].weight.data.copy_(torch.eye(4)[:3, :, None, None])
    model[1].running_var.copy_(torch.tensor([2e-7, 1e-5, 3e-5]))
    steps = torch.arange(48).reshape(1, 4, 3, 4) / 2**14
    check(model.to(dtype), (steps.to(dtype),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["batch norm 2d", "group norm"])
def test_float32_weights_with_half_precision_input(name, dtype):
    module, x, _, _ = MODULES[name]
    check(_trained(module), (x.to(dtype),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["batch norm 2d", "instance norm", "layer norm", "group norm"])
def test_half_precision_norm_is_computed_in_float32(name, dtype):
    module, x, _, _ = MODULES[name]
    check(_trained(module).to(dtype), (x.to(dtype),))
    module.float()


@pytest.mark.parametrize("module", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=1)])
def test_training_mode_is_rejected(module):
    class Training(nn.Module):
        def forward(self, x):
            return self.norm.train()(x)

    outer = Training()
    outer.norm = module
    with pytest.raises(UnsupportedArgumentError, match=r"training mode[\s\S]*model\.eval\(\)"):
        convert(outer, (X4,))


def _with_weight_norm(register):
    torch.manual_seed(0)
    return register(nn.Linear(6, 3)).eval()


DERIVED = {
    "local response": nn.LocalResponseNorm(3, alpha=0.5, beta=0.75, k=1.5),
    "normalize": lambda x: nn.functional.normalize(x, dim=1),
    "normalize, other order": lambda x: nn.functional.normalize(x, p=3.0, dim=-1),
    "weight norm": _with_weight_norm(nn.utils.parametrizations.weight_norm),
    "spectral norm": _with_weight_norm(nn.utils.parametrizations.spectral_norm),
}


@pytest.mark.parametrize("name", DERIVED)
def test_decomposed_norms_equal_torch(name):
    check(DERIVED[name], (X4,))


def test_normalize_keeps_eps():
    # Without eps = 1e-12 a row of zeros gives NaN and a row of 1e-20 gives ones.
    rows = torch.zeros(3, 4)
    rows[1], rows[2] = 1e-20, 1.0
    check(lambda x: nn.functional.normalize(x), (rows,))


FAR_FROM_ZERO = {
    "layer norm 768": (nn.LayerNorm(768), (64, 768)),
    "layer norm 1,000": (nn.LayerNorm(1_000), (64, 1_000)),
    "layer norm 8,192": (nn.LayerNorm(8_192), (16, 8_192)),
    "layer norm of two axes": (nn.LayerNorm((56, 96)), (4, 56, 96)),
    "instance norm 224": (nn.InstanceNorm2d(8), (2, 8, 224, 224)),
    "group norm 64": (nn.GroupNorm(8, 32), (2, 32, 64, 64)),
    "batch norm of the batch": (nn.BatchNorm2d(8, track_running_stats=False), (4, 8, 64, 64)),
}


@pytest.mark.parametrize("name", FAR_FROM_ZERO)
def test_norm_of_elements_far_from_zero_is_as_exact_as_eager(name):
    """A float32 mean of 100 has an error of 4e-6 of the deviation at best; eager has 1e-5."""
    module, sizes = FAR_FROM_ZERO[name]
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0)) + 100
    exact = copy.deepcopy(module).double()(x.double())
    program = convert(module.eval(), (x,))
    program.optimize()
    (got,) = run(program, (x,))
    assert (got - exact).abs().max() < 3e-5
