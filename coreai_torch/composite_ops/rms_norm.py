"""Root-mean-square normalisation over the last axis."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._shapes import FLOATS, require_dtype, require_expandable


class RMSNormImpl(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Compute `input / sqrt(mean(input²) + eps) * scale`, with the scale as an argument.

    The mean is computed in float32. The quotient is rounded to the input's dtype before it is
    scaled (Llama), unless the scale is float32: then it is scaled in float32 and rounded once
    (Gemma).
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        if not eps >= 0:
            raise ValueError(f"RMSNormImpl: eps is {eps}, it must be 0 or more")
        self.eps = eps
        self.axes = -1
        self.version = 1

    def forward(self, input: Tensor, scale: Tensor) -> Tensor:
        require_dtype("RMSNormImpl", FLOATS, input=input, scale=scale)
        require_expandable("RMSNormImpl", "scale", scale.shape, input.shape)
        wide = input.float()
        mean_square = wide.square().mean(self.axes, keepdim=True)
        normed = wide * torch.rsqrt(mean_square + self.eps)
        if scale.dtype != torch.float32:
            normed = normed.to(input.dtype)
        return (normed * scale).to(input.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class RMSNorm(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """An `RMSNormImpl` with a scale parameter per feature, or per head and feature.

    With `n_heads` the input is `[batch, n_heads, seq, dim]`. To convert it to a composite,
    externalize `RMSNormImpl`: this module only owns the weight.
    """

    def __init__(self, dim: int, eps: float = 1e-5, n_heads: int | None = None) -> None:
        super().__init__()
        if dim < 1 or (n_heads is not None and n_heads < 1):
            raise ValueError(f"RMSNorm: dim={dim}, n_heads={n_heads}; sizes must be 1 or more")
        self.weight = nn.Parameter(torch.ones((dim,) if n_heads is None else (n_heads, 1, dim)))
        self.rmsnorm_impl = RMSNormImpl(eps=eps)
        self.version = self.rmsnorm_impl.version

    @property
    def norm(self) -> RMSNormImpl:
        """The inner module without the weight."""
        return self.rmsnorm_impl

    def forward(self, x: Tensor) -> Tensor:
        return self.rmsnorm_impl(x, self.weight)

    def extra_repr(self) -> str:
        return f"weight={list(self.weight.shape)}"
