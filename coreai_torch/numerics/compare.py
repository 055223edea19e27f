"""How far a result is from torch's, and how far it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx

from ..ir.types import narrow
from .output_error import OutputError

# For one op, by the dtype it computes in; integers and booleans must be equal.
TOLERANCE = {
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 1e-3,
    torch.bfloat16: 1e-2,  # eight bits of mantissa: one unit is 0.8 %
    torch.float8_e4m3fn: 1e-1,
    torch.float8_e5m2: 2e-1,
}


def allowed(graph: fx.Graph) -> dict[torch.dtype, float]:
    """The tolerance of a whole graph for outputs of each dtype.

    Roundings add up like the steps of a random walk, so that of one op grows with the square root
    of the longest chain of ops. An output is as precise as the narrowest type on the way to it.
    """
    depth: dict[fx.Node, int] = {}
    coarsest = 0.0
    for node in graph.nodes:
        before = max((depth[n] for n in node.all_input_nodes), default=0)
        depth[node] = before + (node.op == "call_function")
        if node.op == "call_function":
            coarsest = max([coarsest, *(TOLERANCE.get(d, 0.0) for d in _dtypes(node))])
    growth = math.sqrt(max([1, *depth.values()]))
    return {dtype: max(rounding, coarsest) * growth for dtype, rounding in TOLERANCE.items()}


def _dtypes(node: fx.Node) -> list[torch.dtype]:
    val = node.meta.get("val")
    parts = val if isinstance(val, list | tuple) else [val]
    return [narrow(p.dtype) for p in parts if isinstance(p, torch.Tensor)]


def compared(
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    tolerance: Mapping[torch.dtype, float],
    usual: float = 0.0,
) -> OutputError:
    """One result held against torch's; 64-bit results of torch are narrowed first.

    `usual` is the largest value of this result on other inputs. It counts where the values are
    unusually small: the norm of a constant row is 0, or 2e-6 for the rounding of its mean.
    """
    want = want.detach().to(narrow(want.dtype))
    limit = tolerance.get(want.dtype, 0.0)
    dtype, shape = str(want.dtype).removeprefix("torch."), tuple(want.shape)
    if got.dtype != want.dtype or got.shape != want.shape:
        problem = (
            f"is {list(got.shape)} {str(got.dtype).removeprefix('torch.')}, "
            f"torch gives {list(shape)} {dtype}"
        )
        return OutputError(name, dtype, shape, False, limit, problem=problem)
    if want.numel() == 0:
        return OutputError(name, dtype, shape, True, limit)
    figures = _figures(_wide(got), _wide(want), limit, usual)
    figures["argmax_agreement"] = _argmax_agreement(got, want)
    return OutputError(name, dtype, shape, tolerance=limit, **figures)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def largest(tensor: torch.Tensor) -> float:
    """The largest finite absolute value."""
    wide = _wide(tensor)
    finite = wide[wide.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _figures(got: torch.Tensor, want: torch.Tensor, limit: float, usual: float) -> dict[str, Any]:
    """All figures over the elements that are finite on both sides."""
    nan_agrees = bool((got.isnan() == want.isnan()).all())
    infinite = want.isinf() | got.isinf()
    inf_agrees = bool((got[infinite] == want[infinite]).all())
    finite = got.isfinite() & want.isfinite()
    error = torch.where(finite, (got - want).abs(), 0.0)
    size = torch.where(finite, want.abs(), 0.0)
    scale = max(float(size.max()), usual)
    count = max(1, int(finite.sum()))
    close = error <= limit * (size + scale)
    root = math.sqrt(float((error**2).sum()) / count)
    index = _worst(error - limit * size, got, want)
    return {
        "ok": nan_agrees and inf_agrees and bool(close.all()),
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
    """The place to show: where only one side is NaN or infinite, or else the largest error."""
    apart = (got.isnan() != want.isnan()) | ((got.isinf() | want.isinf()) & (got != want))
    flat = int(apart.flatten().to(torch.uint8).argmax() if apart.any() else excess.argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape))


def _cosine(got: torch.Tensor, want: torch.Tensor) -> float | None:
    norms = float(got.abs().square().sum().sqrt()) * float(want.abs().square().sum().sqrt())
    if not norms or not math.isfinite(norms):
        return None
    return float((got.conj() * want).sum().real) / norms


def _argmax_agreement(got: torch.Tensor, want: torch.Tensor) -> float | None:
    """The share of rows along the last axis whose largest element is at the same place."""
    if not want.is_floating_point() or want.dim() == 0 or want.shape[-1] < 2:
        return None
    got, want = got.float(), want.float()
    return float((got.argmax(-1) == want.argmax(-1)).double().mean())
