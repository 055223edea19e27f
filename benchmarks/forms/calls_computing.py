"""Single calls that compute: elementwise, pools, norms, attention, layers, losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .inputs import Calls, floats, ids

PICTURE = (1, 8, 28, 28)
ROWS = (4, 64)


def _unary(function: object) -> object:
    return lambda: (function, floats(*ROWS))


_UNARY = {
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "softplus": functional.softplus,
    "softplus of 1000": lambda x: functional.softplus(x, 2.0, 10.0),
    "mish": functional.mish,
    "gelu": functional.gelu,
    "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "elu": functional.elu,
    "celu": lambda x: functional.celu(x, 0.5),
    "selu": functional.selu,
    "leaky_relu": functional.leaky_relu,
    "relu6": functional.relu6,
    "logsigmoid": functional.logsigmoid,
    "softsign": functional.softsign,
    "hardtanh": functional.hardtanh,
    "softshrink": functional.softshrink,
    "floor": torch.floor,
    "round": torch.round,
    "round to 2": lambda x: x.round(decimals=2),
    "trunc": torch.trunc,
    "frac": torch.frac,
    "floor division by 2": lambda x: x // 2,
    "remainder": lambda x: x % 3,
    "fmod": lambda x: x.fmod(3),
    "to int": lambda x: x.int(),
    "to int and back": lambda x: x.int().to(x.dtype),
    "nan_to_num": torch.nan_to_num,
    "isnan": torch.isnan,
    "clamp": lambda x: x.clamp(-1, 1),
    "pow 3": lambda x: x**3,
    "rsqrt": torch.rsqrt,
    "sign": torch.sign,
    "erf": torch.erf,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
}
ELEMENTWISE: Calls = {
    **{name: _unary(function) for name, function in _UNARY.items()},  # type: ignore[misc]
    "prelu": lambda: (nn.PReLU(8), floats(*PICTURE)),
    "floor division": lambda: (lambda x, y: x // y, floats(*ROWS) * 2),
    "floor division of ids": lambda: (lambda x: x // 7, (ids(100, 4, 8),)),
    "remainder of ids": lambda: (lambda x: x % 7, (ids(100, 4, 8),)),
    "atan2": lambda: (torch.atan2, floats(*ROWS) * 2),
    "logaddexp": lambda: (torch.logaddexp, floats(*ROWS) * 2),
    "lerp": lambda: (lambda x, y: torch.lerp(x, y, 0.3), floats(*ROWS) * 2),
    "outer comparison": lambda: (lambda x: x[:, None] == x[None], (ids(9, 16),)),
    "glu": lambda: (functional.glu, floats(*ROWS)),
}
REDUCTIONS: Calls = {
    "mean": lambda: (lambda x: x.mean((2, 3)), floats(*PICTURE)),
    "sum": lambda: (lambda x: x.sum(1), floats(*ROWS)),
    "std": lambda: (lambda x: x.std(1), floats(*ROWS)),
    "var_mean": lambda: (lambda x: torch.var_mean(x, 1, correction=0), floats(*ROWS)),
    "amax": lambda: (lambda x: x.amax(1), floats(*ROWS)),
    "norm": lambda: (lambda x: x.norm(dim=1), floats(*ROWS)),
    "logsumexp": lambda: (lambda x: x.logsumexp(1), floats(*ROWS)),
    "softmax": lambda: (lambda x: x.softmax(-1), floats(*ROWS)),
    "log_softmax": lambda: (lambda x: x.log_softmax(-1), floats(*ROWS)),
    "normalize": lambda: (functional.normalize, floats(*ROWS)),
    "prod": lambda: (lambda x: x.prod(1), floats(4, 8)),
}
POOLS: Calls = {
    "max 2d": lambda: (lambda x: functional.max_pool2d(x, 3, 2, 1), floats(*PICTURE)),
    "max 2d ceil": lambda: (
        lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True),
        floats(*PICTURE),
    ),
    "max 1d": lambda: (lambda x: functional.max_pool1d(x, 2), floats(1, 8, 32)),
    "avg 2d": lambda: (lambda x: functional.avg_pool2d(x, 2), floats(*PICTURE)),
    "avg 2d padded": lambda: (lambda x: functional.avg_pool2d(x, 3, 2, 1), floats(*PICTURE)),
    "avg 2d without padding in the count": lambda: (
        lambda x: functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        floats(*PICTURE),
    ),
    "avg 1d": lambda: (lambda x: functional.avg_pool1d(x, 4), floats(1, 8, 32)),
    "adaptive avg to 1": lambda: (lambda x: functional.adaptive_avg_pool2d(x, 1), floats(*PICTURE)),
    "adaptive avg to 7": lambda: (lambda x: functional.adaptive_avg_pool2d(x, 7), floats(*PICTURE)),
    "adaptive avg to 6": lambda: (lambda x: functional.adaptive_avg_pool2d(x, 6), floats(*PICTURE)),
    "adaptive max to 1": lambda: (lambda x: functional.adaptive_max_pool2d(x, 1), floats(*PICTURE)),
    "lp 2d": lambda: (lambda x: functional.lp_pool2d(x.abs() + 1, 2, 2), floats(*PICTURE)),
}
NORMS: Calls = {
    "layer_norm": lambda: (nn.LayerNorm(64), floats(*ROWS)),
    "layer_norm without scale": lambda: (
        nn.LayerNorm(64, elementwise_affine=False),
        floats(*ROWS),
    ),
    "rms_norm": lambda: (nn.RMSNorm(64), floats(*ROWS)),
    "group_norm": lambda: (nn.GroupNorm(4, 8), floats(*PICTURE)),
    "instance_norm": lambda: (nn.InstanceNorm2d(8, affine=True), floats(*PICTURE)),
    "batch_norm": lambda: (nn.BatchNorm2d(8), floats(*PICTURE)),
    "local_response_norm": lambda: (nn.LocalResponseNorm(3), floats(*PICTURE)),
    "linear and batch_norm": lambda: (
        nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32)),
        floats(*ROWS),
    ),
    "conv and batch_norm": lambda: (
        nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)),
        floats(*PICTURE),
    ),
    "conv transpose and batch_norm": lambda: (
        nn.Sequential(nn.ConvTranspose2d(8, 16, 2, 2), nn.BatchNorm2d(16)),
        floats(*PICTURE),
    ),
}
HEADS = (1, 4, 16, 8)


def _attention(length: int = 16, **keywords: object) -> object:
    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, **keywords)  # type: ignore[arg-type]

    return lambda: (call, (*floats(1, 4, length, 8), *floats(*HEADS), *floats(*HEADS)))


def _causal_scores(x: Tensor) -> Tensor:
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    return x.masked_fill(~mask, float("-inf")).softmax(-1)


def _padding_mask(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(16)[None] < lengths[:, None]
    return x * mask.to(x.dtype)


ATTENTION: Calls = {
    "plain": _attention(),  # type: ignore[dict-item]
    "causal": _attention(is_causal=True),  # type: ignore[dict-item]
    "one query": _attention(1),  # type: ignore[dict-item]
    "float mask": lambda: (
        lambda q, m: functional.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (*floats(*HEADS), *floats(16, 16)),
    ),
    "bool mask": lambda: (
        lambda q, m: functional.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (*floats(*HEADS), torch.ones(16, 16, dtype=torch.bool).tril()),
    ),
    "grouped heads": lambda: (
        lambda q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (*floats(*HEADS), *floats(1, 2, 16, 8)),
    ),
    "by hand": lambda: (
        lambda q, k, v: (q @ k.transpose(-1, -2) * 0.3).softmax(-1) @ v,
        floats(*HEADS) * 3,
    ),
    "causal scores": lambda: (_causal_scores, floats(1, 4, 16, 16)),
    "padding mask": lambda: (_padding_mask, (*floats(4, 16), ids(16, 4))),
    "MultiheadAttention": lambda: (_SelfAttention(), floats(1, 16, 32)),
    "TransformerEncoderLayer": lambda: (
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        floats(1, 16, 32),
    ),
}


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return out


LAYERS: Calls = {
    "linear": lambda: (nn.Linear(64, 32), floats(*ROWS)),
    "linear without bias": lambda: (nn.Linear(64, 32, bias=False), floats(1, 16, 64)),
    "conv1d": lambda: (nn.Conv1d(8, 16, 3, padding=1), floats(1, 8, 32)),
    "conv2d": lambda: (nn.Conv2d(8, 16, 3, 2, 1), floats(*PICTURE)),
    "conv2d same": lambda: (nn.Conv2d(8, 16, 4, padding="same"), floats(*PICTURE)),
    "conv2d reflect": lambda: (
        nn.Conv2d(8, 16, 3, padding=1, padding_mode="reflect"),
        floats(*PICTURE),
    ),
    "conv2d depthwise": lambda: (nn.Conv2d(8, 8, 3, padding=1, groups=8), floats(*PICTURE)),
    "conv3d": lambda: (nn.Conv3d(4, 8, 3, padding=1), floats(1, 4, 6, 8, 8)),
    "conv_transpose1d": lambda: (nn.ConvTranspose1d(8, 4, 4, 2, 1), floats(1, 8, 32)),
    "conv_transpose2d": lambda: (nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), floats(*PICTURE)),
    "einsum": lambda: (
        lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y),
        floats(*HEADS) * 2,
    ),
    "bilinear": lambda: (nn.Bilinear(8, 6, 4), (*floats(3, 8), *floats(3, 6))),
    "cdist": lambda: (torch.cdist, (*floats(12, 8), *floats(9, 8))),
    "pdist": lambda: (functional.pdist, floats(12, 8)),
    "LSTM": lambda: (nn.LSTM(16, 32), floats(12, 1, 16)),
    "LSTM both directions": lambda: (
        nn.LSTM(16, 32, bidirectional=True, batch_first=True),
        floats(2, 12, 16),
    ),
    "GRU": lambda: (nn.GRU(16, 32, 2), floats(12, 1, 16)),
    "RNN": lambda: (nn.RNN(16, 32), floats(12, 1, 16)),
    "LSTMCell": lambda: (nn.LSTMCell(16, 32), floats(2, 16)),
}
LOSSES: Calls = {
    "cross_entropy": lambda: (functional.cross_entropy, (*floats(4, 10), ids(10, 4))),
    "cross_entropy smoothed": lambda: (
        lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1),
        (*floats(4, 10), ids(10, 4)),
    ),
    "mse": lambda: (functional.mse_loss, floats(*ROWS) * 2),
    "smooth_l1": lambda: (functional.smooth_l1_loss, floats(*ROWS) * 2),
    "huber": lambda: (functional.huber_loss, floats(*ROWS) * 2),
    "binary_cross_entropy_with_logits": lambda: (
        functional.binary_cross_entropy_with_logits,
        (*floats(*ROWS), torch.rand(ROWS)),
    ),
    "kl_div": lambda: (functional.kl_div, (*floats(*ROWS), torch.rand(ROWS))),
    "cosine_similarity": lambda: (functional.cosine_similarity, floats(*ROWS) * 2),
    "triplet_margin": lambda: (functional.triplet_margin_loss, floats(*ROWS) * 3),
}
