"""Compare a result with torch's."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir.types import narrow
from .output_error import OutputError
from .tolerance import Limits


def compare(
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    limits: Limits,
    usual: float = 0.0,
) -> OutputError:
    """Compare one result with torch's; narrow a 64-bit result of torch first.

    `usual` is the largest value of this result on other inputs. It raises the limit where the
    values are unusually small: the norm of a constant row is 0, or 2e-6 if its mean is rounded.
    """
    want = want.detach().to(narrow(want.dtype))
    limit = limits.get(want.dtype, 0.0)
    dtype, shape = str(want.dtype).removeprefix("torch."), tuple(want.shape)
    if got.dtype != want.dtype or got.shape != want.shape:
        problem = (
            f"is {list(got.shape)} {str(got.dtype).removeprefix('torch.')}, "
            f"torch gives {list(shape)} {dtype}"
        )
        return OutputError(name, dtype, shape, False, limit, problem=problem)
    if want.numel() == 0:
        return OutputError(name, dtype, shape, True, limit)
    figures = _figures(widen(got), widen(want), limit, usual)
    figures["argmax_agreement"] = _argmax_agreement(got, want)
    return OutputError(name, dtype, shape, tolerance=limit, **figures)


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in float64 or complex128."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def largest(tensor: torch.Tensor) -> float:
    """Return the largest finite absolute value, or 0 if there is none."""
    wide = widen(tensor)
    finite = wide[wide.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def max_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Return the largest absolute difference; equal infinities and two NaN do not differ."""
    a, b = widen(got), widen(want)
    error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    return float(error.max()) if error.numel() else 0.0


def is_close(got: torch.Tensor, want: torch.Tensor, *, rtol: float, atol: float) -> bool:
    """Return whether all elements differ by at most `atol + rtol * |want|`; NaN equals NaN."""
    return bool(torch.isclose(widen(got), widen(want), rtol=rtol, atol=atol, equal_nan=True).all())


def mismatches(got: torch.Tensor, want: torch.Tensor, limit: float, scale: float) -> torch.Tensor:
    """Return the mask of the elements that differ by more than `limit * (|want| + scale)`.

    NaN matches NaN, and an infinity only itself. Integers and booleans must be equal.
    """
    if not (want.is_floating_point() or want.is_complex()):
        return got.ne(want)
    a, b = widen(got), widen(want)
    close = b.isfinite() & ((a - b).abs() <= limit * (b.abs() + scale))
    return ~(close | (a == b) | (a.isnan() & b.isnan()))


def _figures(got: torch.Tensor, want: torch.Tensor, limit: float, usual: float) -> dict[str, Any]:
    """Return the figures of two wide tensors over the elements that are finite in both."""
    nan_agrees = bool((got.isnan() == want.isnan()).all())
    infinite = want.isinf() | got.isinf()
    inf_agrees = bool((got[infinite] == want[infinite]).all())
    finite = got.isfinite() & want.isfinite()
    error = torch.where(finite, (got - want).abs(), 0.0)
    size = torch.where(finite, want.abs(), 0.0)
    scale = max(float(size.max()), usual)
    count = max(1, int(finite.sum()))
    root = math.sqrt(float((error**2).sum()) / count)
    index = _worst(error - limit * size, got, want)
    return {
        "ok": nan_agrees and inf_agrees and not mismatches(got, want, limit, scale).any(),
        "max_abs": float(error.max()),
        "mean_abs": float(error.sum()) / count,
        "max_rel": float(error.max()) / scale if scale else (math.inf if root else 0.0),
        "cosine": _cosine(got[finite], want[finite]),
        "psnr": 20 * math.log10(scale / root) if root and scale else (0.0 if root else math.inf),
        "nan_agrees": nan_agrees,
        "inf_agrees": inf_agrees,
        "worst_index": index,
        "got": got[index].item(),
        "want": want[index].item(),
    }


def _worst(excess: torch.Tensor, got: torch.Tensor, want: torch.Tensor) -> tuple[int, ...]:
    """Return the index to show: where only one side is NaN or infinite, or the largest error."""
    apart = (got.isnan() != want.isnan()) | ((got.isinf() | want.isinf()) & (got != want))
    flat = int(apart.flatten().to(torch.uint8).argmax() if apart.any() else excess.argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape))


def _cosine(got: torch.Tensor, want: torch.Tensor) -> float | None:
    norms = float(got.abs().square().sum().sqrt()) * float(want.abs().square().sum().sqrt())
    if not norms or not math.isfinite(norms):
        return None
    return float((got.conj() * want).sum().real) / norms


def _argmax_agreement(got: torch.Tensor, want: torch.Tensor) -> float | None:
    """Return the share of rows along the last axis whose argmax is equal."""
    if not want.is_floating_point() or want.dim() == 0 or want.shape[-1] < 2:
        return None
    got, want = got.float(), want.float()
    return float((got.argmax(-1) == want.argmax(-1)).double().mean())
