"""Export-friendly replacements for torch functions that read tensor values or fix sizes.

`torch.export` cannot trace `torch.cov`, which checks whether its weights sum to zero, or a loss
that raises for a negative variance; `torch.linspace` takes no dynamic number of steps, and export
gives `torch.arange(6, out=x)` another shape than eager. Within `rewrite_for_export` these functions
are computed by ops alone. Their checks of values are skipped, as in any exported program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..torch_compat import check
from .rewrites.ctc_loss import ctc_loss
from .rewrites.lstsq import lstsq


def _equal(x: Tensor, other: Tensor) -> Any:
    return x.shape == other.shape and (x == other).all().item()


def _allclose(x: Tensor, other: Tensor, *args: Any, **kwargs: Any) -> Any:
    return torch.isclose(x, other, *args, **kwargs).all().item()


def _cov(
    x: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    x = x.reshape(1, -1) if x.dim() < 2 else x
    factors = [w for w in (fweights, aweights) if w is not None]
    if not factors:
        centred = x - (x.sum(1) / x.shape[1]).unsqueeze(1)
        return (centred @ centred.mT.conj() / torch.sym_max(x.shape[1] - correction, 0)).squeeze()
    weights = math.prod(factors[1:], start=factors[0])
    total = weights.sum()
    degrees = total - correction
    if aweights is not None and correction != 0:
        degrees = total - correction * (weights * aweights).sum() / total
    centred = x - ((x * weights).sum(1) / total).unsqueeze(1)
    return (centred @ (centred * weights).mT.conj() / degrees.clamp(min=0)).squeeze()


def _corrcoef(x: Tensor) -> Tensor:
    covariance = _cov(x)
    if covariance.dim() == 0:
        return covariance / covariance
    deviations = covariance.diagonal().sqrt()
    return (covariance / deviations.unsqueeze(1) / deviations).clip(-1, 1)


def _combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Gather the elements by indices that follow from their number alone."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    indices = list(choose(range(x.shape[0]), r))
    return x[torch.tensor(indices, dtype=torch.int64).reshape(len(indices), r)]


def _linspace(
    start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    """Compute from both ends, as torch does, if the number of steps is dynamic."""
    if "out" in options:
        return _in_shape_of_out(torch.linspace)(start, end, steps, dtype=dtype, **options)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    is_real = dtype.is_floating_point and not isinstance(start, Tensor | complex)
    is_real = is_real and not isinstance(end, Tensor | complex)
    known = {"device", "requires_grad"} >= options.keys()
    if not (isinstance(steps, torch.SymInt) and is_real and known):
        return NotImplemented
    wide = torch.promote_types(dtype, torch.float32)  # in float16, 2,049 is not an index
    index = torch.arange(steps, dtype=wide, device=options.get("device"))
    count = torch.full_like(index[:1], steps)
    step = (torch.full_like(count, end) - start) / (count - 1).clamp(min=1)
    from_start, from_end = start + step * index, end - step * (count - 1 - index)
    return torch.where((index < steps // 2) | (count == 1), from_start, from_end).to(dtype)


def _in_shape_of_out(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Write into `out` in its own shape if it has as many elements, as eager does.

    Export describes the result as a vector in any case.
    """

    def write(*args: Any, out: Tensor | None = None, **options: Any) -> Any:
        if out is None or out.dim() == 1 or options.get("dtype") not in (None, out.dtype):
            return NotImplemented
        made = function(*args, **{**options, "dtype": out.dtype, "device": out.device})
        return out.copy_(made.reshape(out.shape)) if made.numel() == out.numel() else NotImplemented

    return write


def _narrow(x: Tensor, dim: int, start: Any, length: int) -> Any:
    if not isinstance(start, Tensor):
        return NotImplemented
    first = torch.where(start < 0, start + x.shape[dim], start)
    return x.index_select(dim, first + torch.arange(length))


def _one_hot(x: Tensor, num_classes: int = -1) -> Any:
    if num_classes != -1:
        return NotImplemented
    classes = (x.max() + 1).item()
    check(classes >= 1)
    return (x.unsqueeze(-1) == torch.arange(classes)).long()


def _gaussian_nll_loss(
    x: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    if not isinstance(var, Tensor):
        return NotImplemented
    if x.shape != var.shape and x.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (x - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"mean": torch.mean, "sum": torch.sum, "none": torch.clone}[reduction](loss)


_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.ctc_loss: ctc_loss,
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    functional.one_hot: _one_hot,
    Tensor.allclose: _allclose,
    Tensor.corrcoef: _corrcoef,
    Tensor.cov: _cov,
    Tensor.equal: _equal,
    Tensor.narrow: _narrow,
    torch.allclose: _allclose,
    torch.arange: _in_shape_of_out(torch.arange),
    torch.combinations: _combinations,
    torch.corrcoef: _corrcoef,
    torch.cov: _cov,
    torch.equal: _equal,
    torch.linalg.lstsq: lstsq,
    torch.linspace: _linspace,
    torch.logspace: _in_shape_of_out(torch.logspace),
    torch.narrow: _narrow,
}


class _ReplaceFunctions(TorchFunctionMode):  # type: ignore[misc]
    """Call the replacement of a function; `NotImplemented` from it falls back to the function."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: set[Any] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None:
            first = (named.pop("input"),) if "input" in named else ()
            result = replacement(*first, *args, **named)
            if result is not NotImplemented:
                self.replaced.add(func)
                return result
        return func(*args, **(kwargs or {}))


@contextmanager
def rewrite_for_export() -> Iterator[set[Any]]:
    """Replace functions that read values while a model is exported within this context.

    Yields the set of functions that were replaced, which grows meanwhile.
    Other threads are unaffected, but for the checks of distributions: torch keeps its stack of
    function modes per thread.
    """
    checks = Distribution._validate_args
    Distribution.set_default_validate_args(False)  # they read the values of parameters
    try:
        with _ReplaceFunctions() as mode:
            yield mode.replaced
    finally:
        Distribution.set_default_validate_args(checks)
