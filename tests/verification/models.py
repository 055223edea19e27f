"""Models to verify, and converters with one wrong lowering."""

from __future__ import annotations

import torch
from torch import nn

from coreai_torch import TorchConverter
from coreai_torch.ir import dialect as cai
from coreai_torch.ir.casting import cast


class Counter(nn.Module):
    """A model with state, a dynamic size, and several outputs, one of them indices."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
        self.total.add_(x.sum(0))
        return torch.softmax(self.linear(x), -1), self.total * 2, x.argmax(-1)


class Block(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


class Net(nn.Module):
    """A model with a relu between many other ops."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.block = Block()

    def forward(self, x):
        return torch.tanh(self.block(self.second(torch.sigmoid(self.first(x)))))


def leaky():
    """Return a converter whose relu clamps at -0.125 instead of 0."""
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::relu", allow_override=True)
    def relu(ctx, x):
        return cai.maximum(x, cai.like(x, -0.125))

    return converter


def dividing_by_zero():
    """Return a converter whose sigmoid crashes the process that runs it."""
    converter = TorchConverter()

    @converter.register_torch_lowering("aten::sigmoid", allow_override=True)
    def sigmoid(ctx, x):
        integers = cast(x, torch.int32)
        zero = cai.sub(integers, cai.maximum(integers, integers))
        return cast(cai.floor_divide(integers, zero), torch.float32)

    return converter
