"""For each rewrite, models that have the construct it replaces."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import coreai_torch.ops  # noqa: F401  registers torch.ops.coreai
from coreai_torch import TorchConverter
from coreai_torch.ir import dialect


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


X = torch.linspace(-2, 2, 32).reshape(4, 8)
HALF = X.half()
INDEX = torch.tensor([[0, 1], [2, 0], [1, 1], [3, 2]])
QUERY = torch.sin(torch.arange(256.0)).reshape(1, 2, 8, 16)
TIES = torch.tensor(
    [0.5, 1.5, 2.5, -0.5, -1.5, -0.3, 1e9, math.inf, -math.inf, math.nan, -0.0, 8388607.5]
)


def _attend(query, value, mask):
    return F.scaled_dot_product_attention(query, query, value, attn_mask=mask)


def _write(state, x, index):
    return state.index_copy(1, index, x)


def _dequantized(x, y):
    dequantize = torch.ops.coreai.dequantize.default
    first = dequantize(x, torch.tensor(0.5), None, None, 0, torch.int8, torch.float32)
    return first * dequantize(y, torch.tensor(0.25), None, None, 0, torch.int8, torch.float32)


def _partition(x):
    parts = x.reshape(1, 2, 2, 2, 2, 2).permute(0, 1, 3, 2, 4, 5)
    return parts.exp().sum((2, 3)).reshape(2, 4)


CASES = [
    ("HAZ06", lambda x: torch.sort(x, 1), (HALF,)),
    ("HAZ06", lambda x: x.topk(2), (HALF,)),
    ("HAZ07", lambda x: F.pixel_shuffle(x, 2), (torch.arange(240.0).reshape(2, 8, 3, 5),)),
    ("HAZ07", _partition, (X,)),
    ("HAZ07", lambda x: x.reshape(1, 2, 2, 2, 2, 2).permute(5, 3, 1, 2, 4, 0).reshape(4, 8), (X,)),
    ("HAZ11", torch.round, (TIES,)),
    ("HAZ11", torch.round, (TIES.half(),)),
    ("HAZ11", lambda x: (x.floor(), x.round()), (X,)),
    ("HAZ12", lambda x: torch.trunc(x), (X,)),
    ("HAZ13", lambda x: ((x > 0) & (x < 1) | ~(x < -1) ^ (x > 1)).float(), (X,)),
    ("HAZ13", lambda x: ((x > 0) & (x < 1))[:, None].expand(4, 3, 8).half(), (X,)),
    ("HAZ14", lambda x: ((x > 0) & (x < 2)).float(), (INDEX,)),
    ("HAZ15", lambda x: (x.argmax(1), x.max(0).indices), (X,)),
    ("HAZ16", nn.Sequential(nn.Linear(8, 8), nn.Hardswish()).half(), (HALF,)),
    ("HAZ18", lambda x: (x * x).mean(-1), (HALF,)),
    ("HAZ18", lambda x: x.pow(2).mean(-1), (HALF,)),
    ("HAZ18", lambda x: x.square().sum(-1), (HALF,)),
    ("HAZ20", nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), (X.reshape(1, 4, 8),)),
    ("HAZ20", nn.ConvTranspose1d(4, 3, 2, padding=3), (X.reshape(1, 4, 8),)),
    ("HAZ23", _dequantized, (INDEX.to(torch.int8), INDEX.to(torch.int8))),
    ("HAZ26", lambda x: x.sum(1)[:, None] + x.sum(1)[None], (X,)),
    ("HAZ30", lambda x, i: x.scatter(1, i, 1.0), (X, INDEX)),
    (
        "HAZ31",
        lambda p, v: p.softmax(-1) @ v,
        (torch.linspace(0, 1, 8192).reshape(2, -1).half(), torch.ones(4096, 2).half()),
    ),
    ("HAZ35", _write, (torch.zeros(2, 16, 4), torch.ones(2, 1, 4), torch.tensor([3]))),
    ("HAZ36", lambda q: F.scaled_dot_product_attention(q, q, q), (QUERY,)),
    ("HAZ36", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (QUERY,)),
    ("HAZ37", _attend, (QUERY, QUERY[..., :8], torch.zeros(8, 8))),
    ("HAZ38", _attend, (torch.ones(1, 1, 4, 512), torch.ones(1, 1, 4, 512), torch.zeros(4, 4))),
]


def converter(code: str, **options) -> TorchConverter:
    """Return a converter; it lowers floor or trunc as other converters do."""
    made = TorchConverter(**options)
    if code == "HAZ11":

        @made.register_torch_lowering("aten::floor", allow_override=True)
        def floor(ctx, x):
            return dialect.floor_divide(x, 1)

    if code == "HAZ12":

        @made.register_torch_lowering("aten::trunc", allow_override=True)
        def trunc(ctx, x):
            return dialect.raw_cast(dialect.raw_cast(x, torch.int32), torch.float32)

    return made
