"""Fourier transforms as products with the matrix of the transform, written in torch.

The matrix depends on the length alone, so it is folded in 64 bits and only then narrowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..lowering import case, decomposes
from ..lowering.cases import c64, f32
from ..torch_compat import aten

_LONG = (
    "sums of n terms of both signs: the absolute error grows with the sum of their sizes, "
    "which a result near zero does not show"
)
_CLOSE = (1e-5, 3e-5)
_LENGTH = "the length is a number of the case"


def _waves(rows: int, columns: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of 2 pi j k / length; the turns are taken off while they are integers."""
    turns = torch.arange(rows).unsqueeze(1) * torch.arange(columns) % length
    angle = turns.to(torch.float64) * (2 * math.pi / length)
    return angle.cos().to(torch.float32), angle.sin().to(torch.float32)


def _scale(normalization: int, length: int) -> float:
    """None, by the root of the length, or by the length."""
    return (1.0, length**-0.5, 1.0 / length)[normalization]


def _along(x: torch.Tensor, matrix: torch.Tensor, dim: int) -> torch.Tensor:
    rows = x.movedim(dim, -1).unsqueeze(-2)  # a product with a vector would squeeze in place
    return (rows @ matrix.to(x.dtype)).squeeze(-2).movedim(-1, dim)


def _complex_pass(
    real: torch.Tensor, imaginary: torch.Tensor, dim: int, normalization: int, forward: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    length = real.shape[dim]
    cosine, sine = (w * _scale(normalization, length) for w in _waves(length, length, length))
    sine = -sine if forward else sine
    return (
        _along(real, cosine, dim) - _along(imaginary, sine, dim),
        _along(real, sine, dim) + _along(imaginary, cosine, dim),
    )


@decomposes(
    aten._fft_c2c.default,
    cases=[
        case(c64(8), [0], 0, True, tolerance=_CLOSE, because=_LONG),
        case(c64(3, 5), [1], 1, False, tolerance=_CLOSE, because=_LONG),
        case(c64(3, 4), [0, 1], 2, True, tolerance=_CLOSE, because=_LONG),
    ],
)
def fft_c2c(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> torch.Tensor:
    parts = torch.view_as_real(x)
    real, imaginary = parts.select(-1, 0), parts.select(-1, 1)
    for axis in dim:
        axis = axis % x.dim()
        real, imaginary = _complex_pass(real, imaginary, axis, normalization, forward)
    return torch.complex(real, imaginary)


@decomposes(
    aten._fft_r2c.default,
    cases=[
        case(f32(8), [0], 0, True, tolerance=_CLOSE, because=_LONG),
        case(f32(3, 7), [1], 1, True, tolerance=_CLOSE, because=_LONG),
        case(f32(3, 6), [1], 2, False, tolerance=_CLOSE, because=_LONG),
        case(f32(4, 6), [0, 1], 0, True, tolerance=_CLOSE, because=_LONG),
    ],
)
def fft_r2c(
    x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> torch.Tensor:
    *rest, last = [axis % x.dim() for axis in dim]
    length = x.shape[last]
    kept = length // 2 + 1 if onesided else length
    cosine, sine = (w * _scale(normalization, length) for w in _waves(length, kept, length))
    real, imaginary = _along(x, cosine, last), _along(x, -sine, last)
    for axis in rest:
        real, imaginary = _complex_pass(real, imaginary, axis, normalization, True)
    return torch.complex(real, imaginary)


@decomposes(
    aten._fft_c2r.default,
    cases=[
        case(c64(5), [0], 0, 8, tolerance=_CLOSE, because=_LONG),
        case(c64(3, 4), [1], 2, 7, static_only=_LENGTH, tolerance=_CLOSE, because=_LONG),
        case(
            c64(4, 4),
            [0, 1],
            1,
            6,
            static_only=_LENGTH,
            tolerance=_CLOSE,
            because=_LONG,
        ),
    ],
)
def fft_c2r(
    x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int
) -> torch.Tensor:
    *rest, last = [axis % x.dim() for axis in dim]
    parts = torch.view_as_real(x)
    real, imaginary = parts.select(-1, 0), parts.select(-1, 1)
    for axis in rest:
        real, imaginary = _complex_pass(real, imaginary, axis, normalization, False)
    kept = last_dim_size // 2 + 1
    real, imaginary = real.narrow(last, 0, kept), imaginary.narrow(last, 0, kept)
    # The other half of the spectrum mirrors this one; the first and a middle line stand alone.
    number = torch.arange(kept)
    alone = (number == 0) | (number * 2 == last_dim_size)
    weight = torch.where(alone, 1.0, 2.0) * _scale(normalization, last_dim_size)
    cosine, sine = _waves(kept, last_dim_size, last_dim_size)
    weight = weight.unsqueeze(1)
    return _along(real, cosine * weight, last) - _along(imaginary, sine * weight, last)
