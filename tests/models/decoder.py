"""A Llama-style decoder with a static key-value cache: RMSNorm, RoPE, grouped heads, SwiGLU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from coreai_torch.composite_ops import SDPA, RMSNorm, RoPE

HEADS, GROUPS, WIDTH, LENGTH = 4, 2, 12, 32


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, HEADS * WIDTH, bias=False)
        self.k = nn.Linear(dim, GROUPS * WIDTH, bias=False)
        self.v = nn.Linear(dim, GROUPS * WIDTH, bias=False)
        self.o = nn.Linear(HEADS * WIDTH, dim, bias=False)
        self.rope, self.sdpa = RoPE(), SDPA()
        self.register_buffer("keys", torch.zeros(1, GROUPS, LENGTH, WIDTH))
        self.register_buffer("values", torch.zeros(1, GROUPS, LENGTH, WIDTH))

    def forward(self, x, positions):
        batch, steps, _ = x.shape
        q, k, v = (
            p(x).reshape(batch, steps, -1, WIDTH).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        at = positions[None]
        self.keys.index_copy_(2, positions, self.rope(k, position_ids=at))
        self.values.index_copy_(2, positions, v)
        seen = torch.arange(LENGTH)[None, :] <= positions[:, None]
        y = self.sdpa(self.rope(q, position_ids=at), self.keys, self.values, seen[None, None])
        return self.o(y.transpose(1, 2).reshape(batch, steps, -1))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.before, self.after = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim)
        self.gate = nn.Linear(dim, 2 * dim, bias=False)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x, positions):
        x = x + self.attention(self.before(x), positions)
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, vocabulary=64, dim=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens, positions):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(self.norm(x))
