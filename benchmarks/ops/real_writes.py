"""Writes to parts of a tensor, and ops whose rounding shows at real sizes only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from .real_inputs import Call, ids


def _cost_volume(disparities: int) -> Call:
    """Fill the volume of a stereo network, one disparity at a time."""

    def run(left: Tensor, right: Tensor) -> Tensor:
        channels, height, width = left.shape[1:]
        volume = left.new_zeros(1, 2 * channels, disparities, height, width)
        for shift in range(disparities):
            volume[:, :channels, shift, :, shift:] = left[:, :, :, shift:]
            volume[:, channels:, shift, :, shift:] = right[:, :, :, : width - shift]
        return volume

    return run, (torch.randn(1, 32, 64, 128), torch.randn(1, 32, 64, 128))


def _steps(count: int) -> Call:
    """Store the state of a recurrence after every step."""

    def run(x: Tensor, decay: Tensor) -> Tensor:
        states, state = torch.zeros(count, 4, 256), torch.zeros(4, 256)
        for step in range(count):
            state = state * decay + x[step]
            states[step] = state
        return states

    return run, (torch.randn(count, 4, 256), torch.rand(256))


def _rotated(tokens: int) -> Call:
    """Rotate pairs of neighboring elements by writing even and odd positions."""

    def run(x: Tensor) -> Tensor:
        result = torch.empty_like(x)
        result[..., ::2], result[..., 1::2] = -x[..., 1::2], x[..., ::2]
        return result

    return run, (torch.randn(1, 8, tokens, 64),)


def _points(count: int) -> Call:
    place = torch.randperm(512 * 512)[:count]
    return (
        lambda x, i, j, y: x.index_put((torch.arange(3)[:, None], i, j), y),
        (torch.randn(3, 512, 512), place // 512, place % 512, torch.randn(3, count)),
    )


def _offsets(count: int, bags: int) -> Tensor:
    found = ids(count, bags).sort().values
    return torch.cat([found.new_zeros(1), found[1:]])


WRITES: dict[str, Callable[[], Call]] = {
    "stereo cost volume 24x64x128": lambda: _cost_volume(24),
    "states of 256 steps": lambda: _steps(256),
    "writes of even and odd positions 8x1,024x64": lambda: _rotated(1_024),
    "interpolate linear 10,000 to 22,051": lambda: (
        lambda x: functional.interpolate(x, size=22_051, mode="linear"),
        (torch.randn(1, 8, 10_000),),
    ),
    "interpolate nearest-exact 24 to 564": lambda: (
        lambda x: functional.interpolate(x, size=564, mode="nearest-exact"),
        (torch.randn(1, 64, 24),),
    ),
    "grid_sample border 480x640": lambda: (
        lambda x, g: functional.grid_sample(x, g, padding_mode="border", align_corners=False),
        (torch.randn(1, 3, 480, 640), torch.rand(1, 240, 320, 2) * 2.4 - 1.2),
    ),
    "group_norm 128x256x256 of mean 3": lambda: (
        lambda x: functional.group_norm(x + 3, 32),
        (torch.randn(1, 128, 256, 256),),
    ),
    "layer_norm of planes 8x512x512": lambda: (
        lambda x: functional.layer_norm(x, (512, 512)),
        (torch.randn(1, 8, 512, 512) + 3,),
    ),
    "global average pool 64x512x512": lambda: (
        lambda x: functional.adaptive_avg_pool2d(x, 1),
        (torch.rand(1, 64, 512, 512),),
    ),
    "pad to a multiple of 7 of 100x100x32 dynamic": lambda: (
        lambda x: functional.pad(x, (0, 0, 0, 5, 0, (7 - x.shape[0] % 7) % 7)),
        (torch.randn(100, 100, 32),),
    ),
    "cumsum of positive numbers 1M": lambda: (lambda x: x.cumsum(0), (torch.rand(1_000_000),)),
    "index_put 20,000 points of 3x512x512": lambda: _points(20_000),
    "index_put accumulate 1M in 512x512": lambda: (
        lambda x, i, j, y: x.index_put((i, j), y, accumulate=True),
        (torch.zeros(512, 512), ids(512, 1_000_000), ids(512, 1_000_000), torch.ones(1_000_000)),
    ),
    "embedding 100,000 of 1Mx16": lambda: (
        lambda w, i: functional.embedding(i, w),
        (torch.randn(1_000_000, 16), ids(1_000_000, 100_000)),
    ),
    "index_select 1,024 of 16x2,048x64 axis 1": lambda: (
        lambda x, i: x.index_select(1, i),
        (torch.randn(16, 2_048, 64), ids(2_048, 1_024)),
    ),
    "embedding_bag 50,000 in 4,096 irregular": lambda: (
        lambda w, i, o: functional.embedding_bag(i, w, o, mode="sum"),
        (torch.randn(100_000, 64), ids(100_000, 50_000), _offsets(50_000, 4_096)),
    ),
    "embedding_bag 20,000 in 1,000 irregular dynamic": lambda: (
        lambda i, w, o: functional.embedding_bag(i, w, o, mode="sum"),
        (ids(50_000, 20_000), torch.randn(50_000, 64), _offsets(20_000, 1_000)),
    ),
    "unique 200,000 of 50,000 dynamic": lambda: (torch.unique, (ids(50_000, 200_000),)),
    "cumsum 999,983 dynamic": lambda: (lambda x: x.cumsum(0), (torch.randn(999_983),)),
    "one_hot 2,048 of 32,000": lambda: (
        lambda x: functional.one_hot(x, 32_000),
        (ids(32_000, 2_048),),
    ),
    "index_add 20,000x128 in 64": lambda: (
        lambda x, i: torch.zeros(64, 128).index_add(0, i, x),
        (torch.randn(20_000, 128), torch.randint(0, 64, (20_000,))),
    ),
    "scatter_reduce amax 30,000x64 in 2,000": lambda: (
        lambda x, i: torch.zeros(2_000, 64).scatter_reduce(
            0, i[:, None].expand_as(x), x, "amax", include_self=False
        ),
        (torch.randn(30_000, 64), torch.randint(0, 2_000, (30_000,))),
    ),
    "nan_to_num with numbers 4M": lambda: (
        lambda x: torch.nan_to_num(x, 0.0, 1e4, -1e4),
        (torch.where(torch.randn(4_000_000) > 1, float("inf"), torch.randn(4_000_000)),),
    ),
}
