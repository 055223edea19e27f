"""Random rounding errors: change values by units of their last place."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir.types import narrow
from ..torch_compat import OpOverload
from .equal_terms import equal_terms_error
from .rounding import (
    Kind,
    has_negative_weights,
    is_float,
    is_normwise,
    may_cancel,
    overload,
    rounds_terms,
    terms,
    unit,
    weight_error,
)

_PRODUCTS = {"linear", "mm", "bmm", "matmul", "addmm", "baddbmm"}
_LARGE_PRODUCT = 1 << 24  # multiplications
_POOL = 1 << 20  # random numbers that are drawn once and then reused from random places


class Noise:
    """A source of random numbers between -1 and 1 that is faster than a generator.

    If `narrows` is false, 64-bit numbers have no errors, as if the program computed in 64 bits.
    """

    def __init__(self, seed: int, device: str = "cpu", narrows: bool = True) -> None:
        self._narrows = narrows
        self._generator = torch.Generator().manual_seed(seed)
        self._pool = (torch.rand(2 * _POOL, generator=self._generator) * 2 - 1).to(device)

    def like(self, value: torch.Tensor) -> torch.Tensor:
        """Return random numbers with the shape of a real tensor, in float32."""
        count = value.numel()
        start = int(torch.randint(_POOL, (), generator=self._generator))
        if count <= _POOL:
            return self._pool[start : start + count].view(value.shape)
        part = self._pool[start : start + _POOL]
        return part.repeat(math.ceil(count / _POOL))[:count].view(value.shape)

    def errors_like(self, value: torch.Tensor) -> torch.Tensor:
        """Return random numbers that do not vanish when a 16-bit number is rounded.

        One unit times a number below 0.5 is rounded to no change. With 8 runs, one element in 256
        of a half-precision result would not change in any of them, and its limit would be 0.
        """
        drawn = self.like(value)
        if unit(narrow(value.dtype)) <= unit(torch.float32):
            return drawn
        return drawn / 2 + torch.where(drawn < 0, -0.5, 0.5)

    def _keeps(self, value: torch.Tensor) -> bool:
        return not self._narrows and value.dtype in (torch.float64, torch.complex128)

    def signs_like(self, value: torch.Tensor) -> torch.Tensor:
        """Return random signs with the shape of a real tensor, in float32."""
        return torch.where(self.like(value) < 0, -1.0, 1.0)

    def relative(self, value: Any, count: float) -> Any:
        """Change each element of a float tensor by up to `count` units of its last place."""
        if not is_float(value) or not value.numel() or self._keeps(value):
            return value
        if value.is_complex():
            parts = torch.view_as_real(value.resolve_conj())
            return torch.view_as_complex(self.relative(parts, count).contiguous())
        scale = count * unit(narrow(value.dtype))
        if value.dtype.itemsize == 1:  # float8 has no arithmetic
            return self.relative(value.float(), count * scale / unit(torch.float32)).to(value.dtype)
        errors = self.errors_like(value).to(value.dtype)
        return torch.addcmul(value, errors, value, value=scale)

    def rows(self, value: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
        """Change each element by up to `units` of its last place, a tensor that broadcasts."""
        return self.absolute(value, value.abs().float() * units * unit(narrow(value.dtype)))

    def absolute(self, value: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        """Change each element of a float tensor by up to `amount`."""
        if self._keeps(value):
            return value
        if value.is_complex():
            parts = torch.view_as_real(value.resolve_conj())
            both = amount.unsqueeze(-1).expand(parts.shape)
            return torch.view_as_complex(self.absolute(parts, both).contiguous())
        if not value.numel():
            return value
        return (value + self.errors_like(value) * amount).to(value.dtype)


def sum_error(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> torch.Tensor:
    """Return the error of each element of a sum of products that are added in any order.

    Terms of random signs that are added one after the other give an error of about a unit of the
    sum of their absolute values; terms of one sign give one that grows with the square root of
    their number. Sums of 16-bit numbers are accumulated in 32 bits, and rounded at the end.
    """
    total = _product_of_norms(target, args, result)
    if total is None:
        total = _sum_of_magnitudes(target, args, kwargs)
    count = terms(target, args, result)
    size = result.abs().float()
    total_units = 1.0 + weight_error(target)
    error = unit(torch.float32) * (total_units * total.abs().float() + math.sqrt(count / 10) * size)
    equal = equal_terms_error(target, args)
    if equal is not None:
        given = next(a for a in args if isinstance(a, torch.Tensor))
        shift = _magnitude(given) * equal * unit(narrow(given.dtype))
        error = error + target(shift, *args[1:], **kwargs).abs().float()
    error = error + _coordinate_error(target, args, kwargs, result)
    dtype = narrow(result.dtype)
    if unit(dtype) > unit(torch.float32):
        error = error + unit(dtype) * (size + _bias_magnitude(target, args, kwargs, result))
        if rounds_terms(target):
            error = error + unit(dtype) / 4 * total.abs().float()
    return error


def _sum_of_magnitudes(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Return the sum of the absolute terms; the coordinates of `grid_sampler` are not terms.

    Cubic and Lanczos weights have both signs, so that the terms of `|x|` cancel too: the op is
    applied to the largest `|x|` of the neighbours.
    """
    if has_negative_weights(target, args):
        around = torch.nn.functional.max_pool2d(_magnitude(args[0]), 5, stride=1, padding=2)
        return target(around, *args[1:], **kwargs).abs()
    if _is_grid_sampler(target):
        return target(_magnitude(args[0]), *args[1:], **kwargs)
    absolute, named = map_leaves((args, kwargs), _magnitude)
    return target(*absolute, **named)


def _is_grid_sampler(target: Any) -> bool:
    return overload(target)[0].startswith("grid_sampler")


def _coordinate_error(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> torch.Tensor | float:
    """Return the change of a result by rounded coordinates.

    A coordinate is rounded after 1 is added to it, so its error is a unit of 1. Where large
    neighbours cancel, that is more than a unit of the sum.
    """
    if not _is_grid_sampler(target):
        return 0.0
    step = 2 * unit(narrow(args[1].dtype))
    moved = [target(args[0], args[1] + s, *args[2:], **kwargs) for s in (step, -step)]
    changes = [(m - result).abs().float().nan_to_num(0.0, 0.0) for m in moved]
    return torch.maximum(*changes)


def _bias_magnitude(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
) -> torch.Tensor | float:
    """Return the size of the bias: the product may be rounded to half precision before it."""
    name, _ = overload(target)
    if name in ("addmm", "baddbmm", "addmv", "addbmm"):
        return args[0].abs().float().expand(result.shape)
    bias = kwargs.get("bias", args[2] if len(args) > 2 else None)
    if not isinstance(bias, torch.Tensor):
        return 0.0
    if name == "linear":
        return bias.abs().float()
    if "conv" in name:
        return bias.abs().float().reshape(-1, *[1] * (args[1].dim() - 2))
    return 0.0


def _product_of_norms(
    target: Any, args: tuple[Any, ...], result: torch.Tensor
) -> torch.Tensor | None:
    """Return a bound of the sum of absolute products that is as good for large random matrices."""
    name, _ = overload(target)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if name in ("addmm", "baddbmm"):
        bias, *tensors = tensors
    else:
        bias = tensors[2] if name == "linear" and len(tensors) > 2 else None
    if name not in _PRODUCTS or len(tensors) < 2 or tensors[0].dim() < 2:
        return None
    if result.numel() * tensors[0].shape[-1] < _LARGE_PRODUCT:
        return None
    rows = torch.linalg.vector_norm(tensors[0], dim=-1, dtype=torch.float32)
    axis = -1 if name == "linear" else -2
    columns = torch.linalg.vector_norm(tensors[1], dim=axis, dtype=torch.float32)
    total = rows.unsqueeze(-1) * columns.unsqueeze(-2)
    return total if bias is None else total + bias.abs().float()


def _magnitude(value: Any) -> Any:
    if not is_float(value):
        return value
    return value.abs().float() if unit(narrow(value.dtype)) > 1e-6 else value.abs()


def map_leaves(value: Any, change: Any) -> Any:
    """Apply `change` to all leaves of nested tuples, lists and dictionaries."""
    if isinstance(value, tuple | list):
        return type(value)(map_leaves(v, change) for v in value)
    if isinstance(value, dict):
        return {k: map_leaves(v, change) for k, v in value.items()}
    return change(value)


def rounded(
    kind: Kind,
    target: Any,
    result: Any,
    noise: Noise,
    error: torch.Tensor | None,
    count: float,
) -> Any:
    """Add the rounding error of one op to its result."""
    if isinstance(result, tuple | list):
        return type(result)(rounded(kind, target, r, noise, None, count) for r in result)
    if not is_float(result) or kind in (Kind.EXACT, Kind.STEP, Kind.ORDER, Kind.BODY):
        return result
    if error is not None and error.shape == result.shape:
        return noise.absolute(result, error)
    if is_normwise(target) and result.dim() > 1 and result.numel():
        largest = result.abs().amax((-2, -1), keepdim=True).float()
        return noise.absolute(result, count * unit(narrow(result.dtype)) * largest)
    changed = noise.relative(result, count)
    if may_cancel(target):
        changed = noise.absolute(changed, torch.tensor(unit(narrow(result.dtype))))
    return _with_infinities(changed, result) if _is_pointwise(target) else changed


def _is_pointwise(target: Any) -> bool:
    return isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags


def _with_infinities(changed: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Keep infinities: `inf - 1e-7 * inf` is NaN, and any result was right where `log(0)` is -inf.

    Sums are not repaired: another order of an infinite sum can be NaN.
    """
    if not changed.dtype.is_floating_point or changed.dtype.itemsize == 1:
        return changed
    if bool(changed.sum().isfinite()):
        return changed
    return torch.where(result.isfinite(), changed, result)
