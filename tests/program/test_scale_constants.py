"""Constants of float8_e8m0fnu, the dtype of MX scales."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch.asset.reading import read
from coreai_torch.errors import ConversionError
from coreai_torch.ir import dialect as cai

E8M0 = torch.float8_e8m0fnu


class Scales(nn.Module):
    def __init__(self, count=4):
        super().__init__()
        exponents = torch.arange(count) % 40 - 20
        self.register_buffer("scale", (2.0**exponents).to(E8M0))


class Multiplies(Scales):
    def forward(self, x):
        return x * self.scale.to(torch.float32)


class Returns(Scales):
    def forward(self, x):
        return x * 2, self.scale


class ReturnsBytes(Scales):
    def forward(self, x):
        return x + self.scale.view(torch.uint8)


@pytest.mark.parametrize("model", [Multiplies, Returns, ReturnsBytes])
@pytest.mark.parametrize("count", [4, 600])
def test_constant_converts(model, count):
    program = coreai_torch.convert(model(count).eval(), (torch.rand(count),))
    assert program.verdict


@pytest.mark.parametrize("dtype", [E8M0, torch.float8_e4m3fn])
def test_constant_keeps_its_type_and_its_bytes(dtype, tmp_path):
    model = Returns(300)
    model.scale = torch.arange(300, dtype=torch.int32).remainder(100).to(torch.uint8).view(dtype)
    program = coreai_torch.convert(model.eval(), (torch.rand(4),))
    program.save_asset(tmp_path / "net.aimodel")
    ops = read(tmp_path / "net.aimodel").functions["main"].body.ops
    (stored,) = [op.attributes["value"] for op in ops if op.types and op.types[0].shape == (300,)]
    assert stored.dtype == dtype
    assert torch.equal(stored.view(torch.uint8), model.scale.view(torch.uint8))


def test_lowering_of_the_caller_gets_the_constant():
    @torch.library.custom_op("scale_constants::decode", mutates_args=())
    def decode(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * scale.float()

    decode.register_fake(lambda x, scale: torch.empty_like(x))

    class Decodes(Scales):
        def forward(self, x):
            return torch.ops.scale_constants.decode(x, self.scale)

    seen = []

    def lower(x, scale):
        seen.append(str(scale.type))
        return cai.mul(x, cai.cast(scale, torch.float32))

    converter = coreai_torch.TorchConverter()
    converter.register_torch_lowering("scale_constants::decode")(
        lambda values_map, node, loc: lower(*(values_map[a.name] for a in node.args))
    )
    program = coreai_torch.convert(Decodes(300).eval(), (torch.rand(300),), converter=converter)
    assert seen
    assert seen[0] == "tensor<300xf8E8M0FNU>"
    assert program.verdict


class Gathers(Scales):
    def forward(self, x):
        return self.scale[x.to(torch.int64)].float()


class Casts(nn.Module):
    def forward(self, x):
        return x.to(E8M0)


@pytest.mark.parametrize("model", [Gathers(), Casts()])
def test_ops_that_would_compute_it_are_rejected(model):
    with pytest.raises(ConversionError, match=r"cannot compute float8_e8m0fnu at run time\n  at "):
        coreai_torch.convert(model.eval(), (torch.ones(4),), verify=False)
