"""Compare a result with torch's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.types import narrow
from . import narrowing
from .output_error import OutputError
from .tolerance import Limits

_AS_NEAR = 2.0  # times torch's own distance from the float64 result
_AS_FAR = 4.0  # times torch's distance at the same rank
ILL_CONDITIONED = "decided by float64: torch is as far from it, because rounding errors decide"


@dataclass(frozen=True)
class Allowed:
    """The absolute error that each element may have, and the elements that may be anything."""

    error: torch.Tensor  # 0 means exact
    ties: torch.Tensor | None = None
    note: str = ""  # why the limits are wide

    @classmethod
    def by_table(cls, want: torch.Tensor, limits: Limits) -> Allowed:
        """Allow the limit of the dtype, relative to `|want|` plus the largest `|want|`."""
        limit = limits.get(want.dtype, 0.0)
        if not limit:
            return cls(torch.zeros(want.shape, dtype=torch.float64))
        size = widen(want).abs()
        size = torch.where(size.isfinite(), size, 0.0)
        return cls(limit * (size + (float(size.max()) if size.numel() else 0.0)))


def compare(
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    allowed: Limits | Allowed,
    *,
    wraps: bool = False,
) -> OutputError:
    """Compare one result with torch's; narrow a 64-bit result of torch first.

    Integers of torch that exceed 32 bits differ, except if the result `wraps`: only its low bits
    count.
    """
    wide, want = want.detach(), want.detach().to(narrow(want.dtype))
    dtype, shape = str(want.dtype).removeprefix("torch."), tuple(want.shape)
    if got.dtype != want.dtype or got.shape != want.shape:
        problem = (
            f"is {list(got.shape)} {str(got.dtype).removeprefix('torch.')}, "
            f"torch gives {list(shape)} {dtype}"
        )
        return OutputError(name, dtype, shape, False, 0.0, problem=problem)
    lost = None if wraps else narrowing.beyond_32_bits(wide)
    if lost is not None:
        wrong = narrowing.without_extremes(got, wide, lost)
        if wrong.any():
            problem = narrowing.describe(got, wide, wrong)
            return OutputError(name, dtype, shape, False, 0.0, problem=problem, narrowed=True)
        want = torch.where(lost, got, want)
    if not isinstance(allowed, Allowed):
        allowed = Allowed.by_table(want, allowed)
    if want.numel() == 0:
        return OutputError(name, dtype, shape, True, 0.0)
    figures = _figures(widen(got), widen(want), allowed)
    figures["argmax_agreement"] = _argmax_agreement(got, want)
    figures["note"] = allowed.note if figures["ok"] else ""
    return OutputError(name, dtype, shape, **figures)


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


def wrong_elements(got: torch.Tensor, want: torch.Tensor, allowed: Allowed) -> torch.Tensor:
    """Return the mask of the elements beyond their limits; shapes and dtypes must be equal."""
    got, want = widen(got), widen(want)
    limit = allowed.error.double()
    same = (got == want) | (got.isnan() & want.isnan())
    finite = got.isfinite() & want.isfinite()
    wrong = ~(same | limit.isinf() | (finite & ((got - want).abs() <= limit)))
    return wrong if allowed.ties is None else wrong & ~allowed.ties


def _figures(got: torch.Tensor, want: torch.Tensor, allowed: Allowed) -> dict[str, Any]:
    """Return the figures of two wide tensors over the elements that are finite in both."""
    limit = allowed.error.double()
    same = (got == want) | (got.isnan() & want.isnan())
    tied = torch.zeros_like(same) if allowed.ties is None else allowed.ties
    anything = tied | limit.isinf()  # near an overflow, a correct result may be infinite
    finite = got.isfinite() & want.isfinite()
    error = torch.where(finite & ~tied, (got - want).abs(), 0.0)
    wrong = ~(same | anything | (finite & (error <= limit)))
    size = torch.where(finite, want.abs(), 0.0)
    scale = float(size.max())
    count = max(1, int(finite.sum()))
    root = math.sqrt(float((error**2).sum()) / count)
    index = _worst(wrong, finite, error, limit)
    bounded = torch.where(limit.isinf(), 0.0, limit)
    return {
        "ok": not wrong.any(),
        "tolerance": float(bounded.max()) / scale if scale else 0.0,
        "max_abs": float(error.max()),
        "mean_abs": float(error.sum()) / count,
        "max_rel": float(error.max()) / scale if scale else (math.inf if root else 0.0),
        "cosine": _cosine(got[finite], want[finite]),
        "norm_ratio": norm_ratio(got[finite], want[finite]),
        "psnr": 20 * math.log10(scale / root) if root and scale else (0.0 if root else math.inf),
        "nan_agrees": not (wrong & (got.isnan() != want.isnan())).any(),
        "inf_agrees": not (wrong & (got.isinf() | want.isinf()) & ~got.isnan()).any(),
        "worst_index": index,
        "got": got[index].item(),
        "want": want[index].item(),
        "limit": float(limit[index]),
        "ties": int((tied & ~same).sum()),
        "not_compared": int((got.isnan() & want.isnan()).sum()),
    }


def _worst(
    wrong: torch.Tensor, finite: torch.Tensor, error: torch.Tensor, limit: torch.Tensor
) -> tuple[int, ...]:
    """Return the index to show: a wrong NaN or infinity, or the largest error over its limit."""
    apart = wrong & ~finite
    excess = torch.where(error > 0, error / limit, 0.0)
    excess = torch.where(wrong, excess + 1, excess).nan_to_num(0.0, posinf=1e300)
    flat = int(apart.flatten().to(torch.uint8).argmax() if apart.any() else excess.argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), wrong.shape))


def _norm(wide: torch.Tensor) -> float:
    return float(wide.abs().square().sum().sqrt())


def norm_ratio(got: torch.Tensor, want: torch.Tensor) -> float | None:
    """Return the norm of a result over that of the reference; None if the reference is zero."""
    ours, theirs = _norm(widen(got)), _norm(widen(want))
    return ours / theirs if theirs and math.isfinite(ours) and math.isfinite(theirs) else None


def _cosine(got: torch.Tensor, want: torch.Tensor) -> float | None:
    norms = _norm(got) * _norm(want)
    if not norms or not math.isfinite(norms):
        return None
    return float((got.conj() * want).sum().real) / norms


def _argmax_agreement(got: torch.Tensor, want: torch.Tensor) -> float | None:
    """Return the share of rows along the last axis whose argmax is equal."""
    if not want.is_floating_point() or want.dim() == 0 or want.shape[-1] < 2:
        return None
    got, want = got.float(), want.float()
    return float((got.argmax(-1) == want.argmax(-1)).double().mean())


def as_accurate(
    got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor, allowed: Allowed
) -> Allowed:
    """Allow what is as near to the float64 result as torch's: each element, or all together."""
    if not (want.is_floating_point() or want.is_complex()):
        return _as_often(got, want, exact, allowed)
    limit = allowed.error.double().expand(want.shape)
    computed = limit > torch.finfo(want.dtype).eps / 16 * widen(want).abs()  # others are moved
    most = _explained(want, exact, limit)
    got, want, exact = widen(got), widen(want), widen(exact)
    far, torchs = (got - exact).abs(), (want - exact).abs()
    near = far <= torch.maximum(_AS_NEAR * torchs, limit)
    near &= (torchs <= torch.maximum(most, limit)) | ~want.isfinite()  # torch overflows
    some = computed & got.isfinite() & want.isfinite() & exact.isfinite()
    if bool((torchs[some] <= most).all()) and _are_as_near(far[some], torchs[some], limit[some]):
        return Allowed(torch.where(near | some, torch.inf, limit), allowed.ties, ILL_CONDITIONED)
    return Allowed(torch.where(near, torch.inf, limit), allowed.ties)


def _explained(want: torch.Tensor, exact: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Return the largest error that rounding explains.

    That is half of the digits, or what the error analysis expects of some element: 4 times the
    widest limit. If torch is further from float64, its kernels compute different functions there.
    """
    half = math.sqrt(torch.finfo(want.dtype).eps) * max(largest(want), largest(exact))
    widest = float(limit[limit.isfinite()].max()) if limit.isfinite().any() else 0.0
    return torch.tensor(max(half, _AS_FAR * widest), dtype=torch.float64)


def _are_as_near(far: torch.Tensor, torchs: torch.Tensor, limit: torch.Tensor) -> bool:
    """Return whether all elements together are as near to the float64 result as torch's.

    Where a decision (a `topk`, a rounding) depends on rounding errors, the elements that it changes
    are far off, and others in torch than in the program. So the elements are sorted by their
    distance over their limit: for each distance beyond the limit, at most twice as many elements of
    the program may have 4 times that distance. Nothing is allowed if torch stays within the limits.
    """
    if not far.numel():
        return False
    ours = (far / limit).nan_to_num(0.0, torch.inf).sort(descending=True).values
    others = (torchs / limit).nan_to_num(0.0, torch.inf).sort(descending=True).values
    if float(others[0]) <= 1:
        return False
    rank = torch.arange(len(ours)) // int(_AS_NEAR)
    return bool((ours <= (_AS_FAR * others[rank]).clamp(min=1.0)).all())


def _as_often(
    got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor, allowed: Allowed
) -> Allowed:
    """Allow integers with ties if they differ from the float64 result about as often as torch's."""
    if allowed.ties is None or not allowed.ties.any():
        return allowed
    wrong, torchs = int((got != exact).sum()), int((want != exact).sum())
    if wrong > _AS_NEAR * torchs or torchs > _AS_NEAR * int(allowed.ties.sum()):
        return allowed  # ties do not explain more
    return Allowed(allowed.error, torch.ones_like(allowed.ties), ILL_CONDITIONED)
