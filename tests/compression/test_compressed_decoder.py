"""Conversion and size of a decoder with half a billion weights in 4 bits."""

import pytest
import torch
from conversion import checked, compressed, converted, saved_bytes
from torch import nn
from torch.nn import functional as F

from coreai_torch._compression.custom_layers import WeightDequantizeModule

BLOCK = 32


def packed(module, dtype):
    """Replace a weight by 4-bit integers with a scale for each block."""
    rows, columns = module.weight.shape
    data = torch.randint(-8, 8, (rows, columns), dtype=torch.int8)
    # Different values in each layer: equal weights would be stored once.
    scale = torch.rand(rows, columns // BLOCK).to(dtype) * (0.2 / columns**0.5)
    return compressed(module, WeightDequantizeModule(data, scale, input_dtype=torch.int4))


class Attention(nn.Module):
    def __init__(self, dim, heads, groups):
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, dim // heads
        self.q, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(dim, groups * self.width, bias=False) for _ in range(2))

    def forward(self, x):
        batch, steps, _ = x.shape
        q, k, v = (
            layer(x).reshape(batch, steps, -1, self.width).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, steps, -1))


class Block(nn.Module):
    def __init__(self, dim, hidden, heads, groups):
        super().__init__()
        self.before, self.after = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, heads, groups)
        self.gate, self.up = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A decoder whose embedding is tied to its head."""

    def __init__(self, vocabulary, dim, hidden, heads, groups, layers):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(Block(dim, hidden, heads, groups) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)


def decoder(dtype, **sizes):
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Decoder(**sizes).to(dtype)
    count = sum(p.numel() for p in model.parameters())
    for module in list(model.modules()):
        if isinstance(module, nn.Linear | nn.Embedding):
            packed(module, dtype)
        elif isinstance(module, nn.RMSNorm):
            module.weight = nn.Parameter(torch.ones(module.normalized_shape, dtype=dtype))
    return model.eval(), count


def test_small_decoder_equals_eager():
    sizes = {"vocabulary": 96, "dim": 64, "hidden": 128, "heads": 4, "groups": 2, "layers": 2}
    model, count = decoder(torch.float32, **sizes)
    program = checked(model, torch.tensor([[3, 95, 0, 17]]))
    assert saved_bytes(program) < count * (0.5 + 4 / BLOCK) + 20_000


@pytest.mark.slow
def test_size_of_half_billion_weight_decoder():
    sizes = {"vocabulary": 151_936, "dim": 896, "hidden": 4_864, "heads": 14, "groups": 2}
    model, count = decoder(torch.float16, **sizes, layers=24)
    assert 490e6 < count < 500e6
    program = converted(model, torch.zeros(1, 8, dtype=torch.int64))
    assert saved_bytes(program) < 0.30 * 2 * count
    program.optimize()
    assert saved_bytes(program) < 0.30 * 2 * count
