"""Measure the rounding of eager against the same call in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .modules import Call
from .tolerances import BY_DTYPE

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
_TIMES_EAGER = 2
_LARGEST = 10  # tolerances of the largest result: a jump of a function is not rounding


def truth(call: Call) -> list[torch.Tensor] | None:
    """Return the results in float64, or None if torch cannot compute them."""
    wide = dataclasses.replace(
        call,
        leaves=tuple(_widened(leaf) for leaf in call.leaves),
        tensors=tuple(_widened(tensor) for tensor in call.tensors),
    )
    try:
        return wide.eager()
    except Exception:  # an op that torch supports only in float32
        return None


def _widened(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.to(_WIDE.get(leaf.dtype, leaf.dtype))
    return _WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def no_further_than_eager(got: torch.Tensor, want: torch.Tensor, true: torch.Tensor) -> bool:
    """Return whether the error of each element is within tolerance or twice the largest of eager.

    Attention over logits of 200 differs from float64 by 1.7e-5 in eager float32: a tolerance of
    1e-5 against eager would require its order of summation. In float16 `log1p(exp(12))` is infinite
    in eager, and 12 is right.
    """
    if got.dtype != want.dtype or want.dtype not in BY_DTYPE or not got.is_floating_point():
        return False
    if not got.numel() or true.shape != want.shape:
        return False
    relative, absolute = BY_DTYPE[want.dtype]
    kept = true.to(want.dtype)  # the exponential of a matrix overflows float16
    true = torch.where(kept.isinf(), kept, true.double())
    got, want = got.double(), want.double()
    near = torch.isclose(got, true, rtol=relative, atol=absolute, equal_nan=True) | (got == want)
    known = want.isfinite() & true.isfinite()
    if not known.any():
        return bool(near.all())
    eagers = (want - true)[known].abs().max()
    most = min(_TIMES_EAGER * eagers, _LARGEST * relative * true[known].abs().max())
    return bool((near | (known & ((got - true).abs() <= most))).all())
