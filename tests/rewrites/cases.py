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
EDGES = torch.tensor([0.0, -0.0, 6e-8, -6e-8, 1e-4, 1.0, -1.0, 300.0, -300.0, 65504.0]).half()


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


def _attend_to_many(query):
    """Attend with a mask that hides all keys of one block, and all keys of one query."""
    keys = torch.linspace(-1, 1, 17000 * 32).reshape(1, 2, 17000, 16).to(query.dtype)
    mask = torch.zeros(8, 17000, dtype=query.dtype)
    mask[0, 16000:], mask[1, :16384], mask[2] = -math.inf, -math.inf, -math.inf
    return F.scaled_dot_product_attention(query, keys, keys, attn_mask=mask)


def _masked(x):
    return (x @ x.T + torch.full((4, 4), -math.inf, dtype=x.dtype).triu(1)).softmax(-1)


def _masked_attention(query):
    mask = torch.full((8, 8), -math.inf, dtype=query.dtype).triu(1)
    return F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


def _selected(x):
    inside = (x > -0.5) & ~(x > 1) | (x == 2)
    return torch.where(inside, x, 3 * x), (x != 0).to(x.dtype)


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
    ("PLACE01", _selected, (HALF,)),
    ("PLACE01", lambda x: torch.where(x > 0, x, 0.25), (EDGES,)),
    ("PLACE02", lambda x: F.interpolate(x[None], scale_factor=2), (X,)),
    ("PLACE03", lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"), (X,)),
    ("PLACE03", lambda x: F.interpolate(x[None, None], (9, 16), mode="bilinear"), (HALF,)),
    (
        "PLACE03",
        lambda x: F.interpolate(x[None], size=16, mode="linear", align_corners=True),
        (HALF,),
    ),
    ("PLACE05", lambda x: x.cumsum(0), (X,)),
    ("PLACE05", lambda x: (x.cumsum(-1), x.flip(-1).cumsum(-1).flip(-1)), (HALF,)),
    (
        "PLACE08",
        lambda q, k: F.scaled_dot_product_attention(q, k, k.sin()),
        (QUERY, torch.sin(torch.arange(16400 * 32.0)).reshape(1, 2, 16400, 16)),
    ),
    ("PLACE08", _attend_to_many, (QUERY,)),
    ("PLACE10", _masked, (HALF,)),
    ("PLACE10", _masked_attention, (QUERY.half(),)),
    ("PLACE13", F.silu, (X,)),
    ("PLACE13", F.silu, (EDGES,)),
    ("PLACE14", F.gelu, (HALF,)),
    ("PLACE14", F.gelu, (torch.linspace(-8, 8, 500).half(),)),
    ("PLACE15", nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5)), (X,)),
    ("PLACE15", nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 5)), (X[None],)),
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

    if code == "PLACE02":

        @made.register_torch_lowering("aten::upsample_nearest1d.vec", allow_override=True)
        def nearest(ctx, x, output_size, scale_factors):
            *rest, width = dialect.sizes(x)
            return dialect.interpolate(
                x, [*rest, 2 * width], [1.0, 1.0, 2.0], [0.0] * 3, "nearest_neighbor"
            )

    return made
