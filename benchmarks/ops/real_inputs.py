"""Functions and inputs of the calls in `real_sizes.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Call = tuple[Callable[..., Any] | torch.nn.Module, tuple[Tensor, ...]]


def regular(n: int) -> Tensor:
    return torch.randn(n, n) + 2 * n**0.5 * torch.eye(n)


def positive(n: int) -> Tensor:
    x = torch.randn(n, n)
    return x @ x.T / n + torch.eye(n)


def ids(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape)


def svd(x: Tensor) -> Tensor:
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u * s) @ v


def eigh(x: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(x)
    return values, (vectors * values) @ vectors.T


def eigvals(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return both parts in order: the order of the values is not defined."""
    values = torch.linalg.eigvals(x)
    return values.real.sort().values, values.imag.sort().values


def eig(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return both parts of the values in order, and `x` with the residuals of the vectors added."""
    values, vectors = torch.linalg.eig(x)
    rest = x.to(torch.complex64) @ vectors - vectors * values.unsqueeze(-2)
    return values.real.sort().values, values.imag.sort().values, x + rest.real + rest.imag


def qr(x: Tensor) -> Tensor:
    q, r = torch.linalg.qr(x)
    return q @ r


def on_grid(size: int, **keywords: Any) -> Call:
    grid = torch.rand(1, size, size, 2) * 2 - 1
    picture = torch.randn(1, 16, size, size)
    return lambda x, g: functional.grid_sample(x, g, align_corners=False, **keywords), (
        picture,
        grid,
    )


def resize(mode: str, *size: int, scale: float = 2.0, **keywords: Any) -> Call:
    return (
        lambda x: functional.interpolate(x, scale_factor=scale, mode=mode, **keywords),
        (torch.randn(1, 16, *size),),
    )


def bags(mode: str) -> Call:
    return (
        lambda w, i, o: functional.embedding_bag(i, w, o, mode=mode),
        (torch.randn(50_000, 64), ids(50_000, 20_000), torch.arange(0, 20_000, 20)),
    )


def istft(seconds: int) -> Call:
    window = torch.hann_window(400)
    spectrum = torch.stft(
        torch.randn(1, 16_000 * seconds), 400, 160, window=window, return_complex=True
    )
    return lambda s, w: torch.istft(s, 400, 160, window=w), (spectrum, window)


def ctc() -> Call:
    steps, classes, length = 500, 64, 60

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return functional.ctc_loss(
            logits.log_softmax(-1), targets, torch.tensor([steps]), torch.tensor([length])
        )

    return loss, (torch.randn(steps, 1, classes), torch.randint(1, classes, (1, length)))


def index_put(count: int, accumulate: bool) -> Call:
    where = ids(count, count) if accumulate else torch.randperm(count)
    return (
        lambda x, i, y: x.index_put((i,), y, accumulate),
        (torch.zeros(count), where, torch.randn(count)),
    )


def scatter_reduce(reduce: str) -> Call:
    return (
        lambda x, i, y: x.scatter_reduce(0, i, y, reduce, include_self=False),
        (torch.zeros(10_000), ids(10_000, 1_000_000), torch.randn(1_000_000)),
    )


def counted_loop(steps: int) -> Call:
    def run(x: Tensor) -> Any:
        return torch.while_loop(
            lambda k, y: k < steps, lambda k, y: (k + 1, y * 0.999 + 1.0), (torch.tensor(0), x)
        )

    return run, (torch.randn(64),)


def scan(steps: int) -> Call:
    def combine(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = state * 0.9 + x
        return state, state * 1.0

    def run(x: Tensor) -> Any:
        return torch._higher_order_ops.scan(combine, torch.zeros(x.shape[1]), x)

    return run, (torch.randn(steps, 16),)
