"""Externalized regions and inlined decompositions get the same passes as the main graph."""

import torch
from pass_graphs import exported

import coreai_torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.convolution(x)) * (torch.arange(4.0) * 2 + 1).sqrt().view(4, 1, 1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x).relu()


def test_constants_are_folded_and_norms_fused_inside_an_externalized_module():
    x = torch.ones(1, 3, 5, 5)
    converter = coreai_torch.TorchConverter().add_pytorch_module(
        Model().eval(), lambda model: exported(model, x), externalize_modules=[Block]
    )
    text = converter.to_coreai().mlir_module.operation.get_asm()
    assert "coreai.invoke" in text
    assert text.count("coreai.conv2d") == 1
    assert not any(op in text for op in ("batch_norm", "coreai.range", "coreai.sqrt", "rsqrt"))


def test_constants_are_folded_inside_an_op_that_is_decomposed_when_lowered():
    class Spectrum(torch.nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).abs()

    program = torch.export.export(Spectrum(), (torch.ones(3, 7),)).run_decompositions()
    converter = coreai_torch.TorchConverter().add_exported_program(program)
    text = converter.to_coreai().mlir_module.operation.get_asm()
    assert not any(op in text for op in ("coreai.range", "coreai.cos", "coreai.sin"))
