"""Random values in the domain of given ones."""

from __future__ import annotations

import torch


def drawn(like: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Draw random values in the domain of the given tensor.

    Integers stay within its range, since they may be indices. A tensor with infinities may be a
    mask, so its own values are drawn. Without negative values in the given tensor none are drawn.
    """
    if like.dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if like.numel() == 0:
        return torch.zeros(shape, dtype=like.dtype)
    if like.is_complex():
        parts = [drawn(p, shape, generator) for p in (like.real, like.imag)]
        return torch.complex(*parts).to(like.dtype)
    if not like.is_floating_point():
        low, high = int(like.min()), int(like.max())
        return torch.randint(low, high + 1, shape, generator=generator).to(like.dtype)
    wide = like.double()
    if not wide.isfinite().all():
        kept = like[~like.isnan()] if wide.isinf().any() else like[wide.isfinite()]
        if not kept.numel():
            return torch.randn(shape, generator=generator).to(like.dtype)
        if wide.isinf().any():
            return kept[torch.randint(0, kept.numel(), shape, generator=generator)]
        return drawn(kept, shape, generator)
    mean, spread = float(wide.mean()), spread_of(wide)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * spread + mean
    return (values.abs() if float(wide.min()) >= 0 else values).to(like.dtype)


def spread_of(wide: torch.Tensor) -> float:
    """Return the standard deviation of float64 values, or their size if they are equal."""
    spread = float(wide.std(correction=0))
    return spread if spread > 0 else max(1.0, float(wide.abs().max()))
