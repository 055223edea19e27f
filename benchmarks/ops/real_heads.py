"""Ops as detection, audio, diffusion and language models call them, at their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from . import real_inputs as inputs
from .cases import boxes, nms
from .real_inputs import Call


def _windows(size: int, window: int, channels: int) -> Call:
    """Partition into windows and reverse it, as Swin does."""
    count = size // window

    def run(x: Tensor) -> Tensor:
        x = torch.roll(x, (-window // 2, -window // 2), (1, 2))
        tiles = x.view(1, count, window, count, window, channels).permute(0, 1, 3, 2, 4, 5)
        tiles = tiles.reshape(-1, window * window, channels) * 2.0
        tiles = tiles.view(1, count, count, window, window, channels).permute(0, 1, 3, 2, 4, 5)
        return torch.roll(tiles.reshape(1, size, size, channels), (window // 2,) * 2, (1, 2))

    return run, (torch.randn(1, size, size, channels),)


def _outlook(size: int) -> Call:
    """Weigh unfolded 3x3 neighborhoods and fold them, as VOLO's outlook attention does."""

    def run(x: Tensor, weights: Tensor) -> Tensor:
        patches = functional.unfold(x, 3, padding=1, stride=2)
        patches = patches.view(1, 6, 32, 9, -1).permute(0, 1, 4, 3, 2)
        found = weights.softmax(-1) @ patches
        found = found.permute(0, 1, 4, 3, 2).reshape(1, 192 * 9, -1)
        return functional.fold(found, size, 3, padding=1, stride=2)

    half = (size + 1) // 2
    return run, (torch.randn(1, 192, size, size), torch.randn(1, 6, half * half, 9, 9))


def _mel(seconds: int) -> Call:
    """Return the log-mel front end of Whisper."""

    def run(x: Tensor, window: Tensor, filters: Tensor) -> Tensor:
        spectrum = torch.stft(x, 400, 160, window=window, return_complex=True)
        mel = filters @ spectrum[..., :-1].abs() ** 2
        log = torch.clamp(mel, min=1e-10).log10()
        return (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0

    return run, (torch.randn(1, 16_000 * seconds), torch.hann_window(400), torch.rand(80, 201))


def _resample() -> Call:
    """Resample 44.1 kHz to 16 kHz with a strided convolution, as torchaudio does."""

    def run(x: Tensor, kernel: Tensor) -> Tensor:
        padded = functional.pad(x[:, None], (17, 17 + 441))
        return functional.conv1d(padded, kernel, stride=441).transpose(1, 2).reshape(1, -1)

    return run, (torch.randn(1, 441_000), torch.randn(160, 1, 475))


def _anchors(levels: tuple[int, ...]) -> Call:
    """Decode the boxes of a YOLO head and keep the best, as its exported graph does."""

    def run(scores: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        best, label = scores.sigmoid().max(-1)
        value, place = best.topk(300)
        rows = place[..., None].expand(-1, -1, 4)
        return value, torch.gather(boxes, 1, rows) + label.gather(1, place)[..., None]

    count = sum(size * size for size in levels)
    return run, (torch.randn(1, count, 80), torch.rand(1, count, 4))


def _distribution(count: int) -> Call:
    """Integrate the box distributions of a YOLO head (DFL)."""
    project = torch.arange(16, dtype=torch.float32)
    return (
        lambda x: x.view(1, count, 4, 16).softmax(-1) @ project,
        (torch.randn(1, count, 64),),
    )


def _deformable_attention() -> Call:
    """Sample four levels as Deformable DETR does."""
    shapes = [(100, 100), (50, 50), (25, 25), (13, 13)]

    def run(value: Tensor, grid: Tensor, weights: Tensor) -> Tensor:
        found = []
        for level, (part, (h, w)) in enumerate(
            zip(value.split([h * w for h, w in shapes], 1), shapes, strict=True)
        ):
            picture = part.permute(0, 2, 1).reshape(8, 32, h, w)
            found.append(functional.grid_sample(picture, grid[level], align_corners=False))
        return (torch.stack(found, -2).flatten(-2) * weights).sum(-1)

    total = sum(h * w for h, w in shapes)
    return run, (
        torch.randn(1, total, 256),
        torch.rand(4, 8, 300, 4, 2) * 2 - 1,
        torch.rand(8, 1, 300, 16),
    )


def _attention(heads: int, tokens: int, size: int, **keywords: Any) -> Call:
    given = tuple(torch.randn(1, heads, tokens, size) for _ in range(3))
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **keywords), given


def _masked_attention(heads: int, tokens: int) -> Call:
    given = tuple(torch.randn(1, heads, tokens, 64) for _ in range(3))
    mask = torch.rand(1, 1, tokens, tokens) > 0.2
    return functional.scaled_dot_product_attention, (*given, mask)


def _grouped_attention(tokens: int) -> Call:
    query = torch.randn(1, 32, tokens, 64)
    key, value = (torch.randn(1, 8, tokens, 64) for _ in range(2))
    return (
        lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        ),
        (query, key, value),
    )


def _relative(tokens: int) -> Call:
    """Add decomposed relative positions to attention, as SAM does."""

    def run(attention: Tensor, q: Tensor, high: Tensor, wide: Tensor) -> Tensor:
        side = int(tokens**0.5)
        rows = torch.einsum("bhwc,hkc->bhwk", q, high)
        columns = torch.einsum("bhwc,wkc->bhwk", q, wide)
        grid = attention.view(4, side, side, side, side)
        return (grid + rows[..., None] + columns[..., None, :]).view(4, tokens, tokens)

    side = int(tokens**0.5)
    return run, (
        torch.randn(4, tokens, tokens),
        torch.randn(4, side, side, 64),
        torch.randn(side, side, 64),
        torch.randn(side, side, 64),
    )


def _rotary(tokens: int) -> Call:
    def run(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        half = torch.cat([-x[..., 64:], x[..., :64]], -1)
        return x * cosine + half * sine

    return run, (torch.randn(1, 32, tokens, 128), torch.rand(tokens, 128), torch.rand(tokens, 128))


def _selective_scan(steps: int) -> Call:
    """Return the state-space recurrence of Mamba as a loop over steps."""

    def combine(state: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        state = state * x[0] + x[1]
        return state, state.sum(-1)

    def run(decay: Tensor, x: Tensor) -> Any:
        return torch._higher_order_ops.scan(combine, torch.zeros(64, 16), (decay, x))[1]

    return run, (torch.rand(steps, 64, 16), torch.randn(steps, 64, 16))


def _experts(tokens: int) -> Call:
    """Route tokens to the best two of eight experts."""

    def run(logits: Tensor, x: Tensor) -> Tensor:
        weight, chosen = logits.softmax(-1).topk(2)
        hot = functional.one_hot(chosen, 8).to(x.dtype) * weight[..., None]
        return torch.einsum("te,td->ed", hot.sum(1), x)

    return run, (torch.randn(tokens, 8), torch.randn(tokens, 512))


def _top_p(vocabulary: int) -> Call:
    """Keep the tokens that hold 90 % of the probability."""

    def run(logits: Tensor) -> Tensor:
        ordered, place = logits.sort(descending=True)
        beyond = ordered.softmax(-1).cumsum(-1) > 0.9
        return logits.masked_fill(beyond.scatter(1, place, beyond), float("-inf"))

    return run, (torch.randn(1, vocabulary),)


def _splat(count: int) -> Call:
    """Sum features of points into a bird's-eye grid, as Lift-Splat does."""

    def run(x: Tensor, place: Tensor) -> Tensor:
        return torch.zeros(200 * 200, 64).index_add(0, place, x).view(200, 200, 64)

    return run, (torch.randn(count, 64), inputs.ids(200 * 200, count))


def _knn(count: int) -> Call:
    """Find the 20 nearest neighbors of each point, as DGCNN does."""

    def run(x: Tensor) -> Tensor:
        inner = -2 * x @ x.transpose(0, 1)
        square = (x**2).sum(1, keepdim=True)
        return (-square - inner - square.transpose(0, 1)).topk(20).indices

    return run, (torch.randn(count, 3),)


def _ball(count: int) -> Call:
    """Group points by radius and gather them, as PointNet++ does."""

    def run(points: Tensor, centers: Tensor) -> Tensor:
        distance = torch.cdist(centers, points)
        place = torch.arange(count).expand(centers.shape[0], -1)
        place = torch.where(distance > 0.2, count - 1, place).sort(1).values[:, :32]
        return points[place]

    return run, (torch.rand(count, 3), torch.rand(256, 3))


def _message_passing(edges: int) -> Call:
    def run(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        total = torch.zeros_like(x).index_add(0, target, x[source])
        degree = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(edges))
        return total / degree.clamp(min=1)[:, None]

    return run, (torch.randn(10_000, 64), inputs.ids(10_000, edges), inputs.ids(10_000, edges))


def _edge_softmax(edges: int) -> Call:
    def run(scores: Tensor, target: Tensor) -> Tensor:
        high = torch.full((10_000,), -1e30).scatter_reduce(0, target, scores, "amax")
        shifted = (scores - high[target]).exp()
        return shifted / torch.zeros(10_000).scatter_add(0, target, shifted)[target]

    return run, (torch.randn(edges), inputs.ids(10_000, edges))


HEADS: dict[str, Callable[[], Call]] = {
    "Swin windows 56x56x96": lambda: _windows(56, 7, 96),
    "outlook attention 192x56x56": lambda: _outlook(56),
    "log-mel 10 s": lambda: _mel(10),
    "log-mel 30 s": lambda: _mel(30),
    "resample 44.1 to 16 kHz 10 s": _resample,
    "YOLO head 8,400": lambda: _anchors((80, 40, 20)),
    "box distributions 8,400": lambda: _distribution(8_400),
    "deformable attention 300 queries": _deformable_attention,
    "attention 8x4,096x40": lambda: _attention(8, 4_096, 40),
    "attention 12x2,048x64 causal": lambda: _attention(12, 2_048, 64, is_causal=True),
    "attention with a mask 12x1,024": lambda: _masked_attention(12, 1_024),
    "grouped attention 32x512": lambda: _grouped_attention(512),
    "decomposed relative positions 1,024": lambda: _relative(1_024),
    "rotary embedding 32x2,048x128": lambda: _rotary(2_048),
    "selective scan 1,000 steps": lambda: _selective_scan(1_000),
    "expert routing 4,096": lambda: _experts(4_096),
    "top-p of 151,936": lambda: _top_p(151_936),
    "splat 100,000 points": lambda: _splat(100_000),
    "nearest neighbors 2,048": lambda: _knn(2_048),
    "ball query 2,048": lambda: _ball(2_048),
    "message passing 100,000 edges": lambda: _message_passing(100_000),
    "edge softmax 100,000": lambda: _edge_softmax(100_000),
    "nms 20,000": lambda: (nms, boxes(20_000)),
}
