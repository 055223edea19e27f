"""Pointwise ops: arithmetic, comparison, logic, functions, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ..asset.reading import Op
from . import carriers
from .registry import Result, Tensor, implements, plans


def _computed(
    op: Op, native: Callable[..., Tensor], by_numpy: Callable[..., Any] | None
) -> Callable[..., Result]:
    """Return the function for the op's dtype: torch's, or numpy's where torch has none."""
    dtype = op.operand_types[0].dtype
    if dtype in carriers.WIDE_UNSIGNED and by_numpy is not None:
        return carriers.by_numpy(by_numpy)
    if dtype in carriers.FLOAT8:
        return carriers.by_float32(native, op.types[0].dtype)
    return native


def _register(names: list[str], native: Callable[..., Tensor], by_numpy: Any) -> None:
    plans(*names)(lambda op: _computed(op, native, by_numpy))


def _both(name: str) -> list[str]:
    """Return the names of an op and of its broadcasting variant."""
    return [name, f"decomposable.broadcasting_{name}"]


def _part_by_part(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Add complex numbers part by part: torch computes `0 - (inf + 1j)` as `-inf + nan j`."""

    def summed(x: Tensor, y: Tensor) -> Tensor:
        if not x.dtype.is_complex:
            return function(x, y)
        return torch.view_as_complex(function(torch.view_as_real(x), torch.view_as_real(y)))

    return summed


def _divide(x: Tensor, y: Tensor) -> Tensor:
    if not carriers.is_integer(x.dtype):
        return x / y
    return _safe(x, y, lambda a, b: torch.div(a, b, rounding_mode="trunc"), torch.neg)


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype == torch.float16:  # the runtime rounds after floor here, and before it in bf16
        return torch.floor(x.float() / y.float()).to(x.dtype)
    if x.dtype.is_floating_point:
        return torch.floor(x / y)
    return _safe(x, y, lambda a, b: torch.div(a, b, rounding_mode="floor"), torch.neg)


def _modulo(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_floating_point:
        return torch.fmod(x, y)
    return _safe(x, y, torch.fmod, torch.zeros_like)


def _safe(
    x: Tensor,
    y: Tensor,
    divide: Callable[[Tensor, Tensor], Tensor],
    by_minus_one: Callable[[Tensor], Tensor],
) -> Tensor:
    """Divide integers; the smallest one divided by -1 wraps, since the processor would trap."""
    if not x.dtype.is_signed:
        return divide(x, y)
    special = y == -1
    return torch.where(special, by_minus_one(x), divide(x, torch.where(special, 1, y)))


def _unsigned_divide(x: Any, y: Any) -> Any:
    if np.any(y == 0):
        raise ZeroDivisionError("integer division by zero")
    return x // y


_BINARY: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "add": (_part_by_part(torch.add), np.add),
    "sub": (_part_by_part(torch.sub), np.subtract),
    "mul": (torch.mul, np.multiply),
    "divide": (_divide, _unsigned_divide),
    "floor_divide": (_floor_divide, _unsigned_divide),
    "modulo": (_modulo, np.fmod),
    "pow": (torch.pow, np.power),
    "maximum": (torch.maximum, np.maximum),
    "minimum": (torch.minimum, np.minimum),
    "equal": (torch.eq, np.equal),
    "not_equal": (torch.ne, np.not_equal),
    "greater": (torch.gt, np.greater),
    "and": (torch.logical_and, None),
    "or": (torch.logical_or, None),
    "xor": (torch.logical_xor, None),
    "bitwise_and": (torch.bitwise_and, np.bitwise_and),
    "bitwise_or": (torch.bitwise_or, np.bitwise_or),
    "bitwise_xor": (torch.bitwise_xor, np.bitwise_xor),
}
for _name, (_native, _by_numpy) in _BINARY.items():
    _register(_both(_name), _native, _by_numpy)


def _relu(x: Tensor) -> Tensor:
    return torch.relu(x) if x.dtype != torch.uint8 else x


def _round(x: Tensor) -> Tensor:
    return torch.round(x) if x.dtype.is_floating_point else x


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x) if x.dtype.is_complex else functional.silu(x)


def _same(x: Any) -> Any:
    return x


_UNARY: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "abs": (torch.abs, _same),
    "acos": (torch.acos, None),
    "acosh": (torch.acosh, None),
    "asin": (torch.asin, None),
    "asinh": (torch.asinh, None),
    "atan": (torch.atan, None),
    "atanh": (torch.atanh, None),
    "cos": (torch.cos, None),
    "cosh": (torch.cosh, None),
    "erf": (torch.erf, None),
    "exp": (torch.exp, None),
    "log": (torch.log, None),
    "not": (torch.logical_not, None),
    "relu": (_relu, _same),
    "round": (_round, _same),
    "rsqrt": (torch.rsqrt, None),
    "sigmoid": (torch.sigmoid, None),
    "silu": (_silu, None),
    "sin": (torch.sin, None),
    "sinh": (torch.sinh, None),
    "sqrt": (torch.sqrt, None),
    "tan": (torch.tan, None),
    "tanh": (torch.tanh, None),
}
for _name, (_native, _by_numpy) in _UNARY.items():
    _register([_name], _native, _by_numpy)


@plans("gelu")
def _gelu(op: Op) -> Callable[..., Result]:
    how = op.attributes.get("approximate", "none")
    if how == "sigmoid":
        return lambda x: x * torch.sigmoid(1.702 * x)

    def gelu(x: Tensor) -> Tensor:
        made = functional.gelu(x, approximate=how)
        if bool(torch.isfinite(x.sum())):
            return made
        # For an infinity torch gives NaN or zero, depending on vectorization. The dialect defines
        # inf for inf and NaN for -inf.
        ends = torch.where(x > 0, torch.inf, torch.nan).to(x.dtype)
        return torch.where(x.isinf(), ends, made)

    return gelu


@plans(*_both("where"))
def _where(op: Op) -> Callable[..., Result]:
    return carriers.moved(torch.where, op.types[0].dtype)


@implements("create_complex")
def _create_complex(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.complex(real, imaginary)


@implements("real_part")
def _real_part(x: Tensor) -> Tensor:
    return torch.real(x)


@implements("imaginary_part")
def _imaginary_part(x: Tensor) -> Tensor:
    return torch.imag(x)


@implements("coreaix.copy_with_constraints", "coreaix.copy_discarding_constraints", "coreaix.view")
def _copy(x: Tensor) -> Tensor:
    return x


# The range of integers narrower than a byte, which are stored in one byte each.
_SHORT = {
    "si2": (-2, 1),
    "si4": (-8, 7),
    **{f"ui{bits}": (0, 2**bits - 1) for bits in (1, 2, 3, 4, 6)},
}


def limits(element: str, dtype: torch.dtype) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer element type."""
    info = torch.iinfo(dtype)
    return _SHORT.get(element, (info.min, info.max))


_FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def to_float4(x: Tensor) -> Tensor:
    """Round to the nearest of the sixteen float4 values, ties to the even code, and saturate."""
    steps = torch.tensor(_FLOAT4, device=x.device)
    middles = (steps[1:] + steps[:-1]) / 2
    x = torch.nan_to_num(x.float(), nan=0.0)
    size = x.abs()
    code = torch.bucketize(size, middles)
    on_tie = (size[..., None] == middles).any(-1)
    code = torch.where(on_tie & (code % 2 == 1), code + 1, code)
    return steps[code.clamp(max=7)].copysign(x).to(torch.float8_e4m3fn)


@plans("cast", "coreaix.cast")
def _cast(op: Op) -> Callable[..., Result]:
    """Cast as the runtime does: values out of range saturate."""
    element, target = op.types[0].element, op.types[0].dtype
    source = op.operand_types[0].dtype
    if op.operand_types[0].element == element:
        return _same
    if source.is_complex and not target.is_complex:
        return lambda x: _converted(torch.real(x), element, target)
    return lambda x: _converted(x, element, target)


def _converted(x: Tensor, element: str, target: torch.dtype) -> Tensor:
    if target == torch.bool:
        return x.float() != 0 if x.dtype in carriers.FLOAT8 else x.to(torch.bool)
    if element == "f4E2M1FN":
        return to_float4(x)
    if target in carriers.FLOAT8:
        return carriers.to_float8(x, target)
    if not carriers.is_integer(target) or x.dtype == torch.bool:
        return x.to(target)
    return saturated(x, element, target)


def saturated(x: Tensor, element: str, target: torch.dtype) -> Tensor:
    """Convert to integers: truncate, saturate, and map NaN to zero."""
    least, greatest = limits(element, target)
    if x.dtype in carriers.FLOAT8 or x.dtype in carriers.NARROW_FLOATS:
        x = x.float()
    if x.dtype.is_floating_point:
        inside = torch.nan_to_num(x.double(), nan=0.0).clamp(float(least), float(greatest))
        if greatest < 2**53:
            return inside.to(target)
        array = carriers.to_numpy(inside)
        overflow = array >= float(greatest)  # float() rounds up: the greatest is odd
        kind = np.uint64 if target == torch.uint64 else np.int64
        integers = np.where(overflow, 0.0, array).astype(kind)
        return carriers.from_numpy(np.where(overflow, kind(greatest), integers), x.device)
    return _within(x, least, greatest).to(target)


def _within(x: Tensor, least: int, greatest: int) -> Tensor:
    have = torch.iinfo(x.dtype)
    if have.min >= least and have.max <= greatest:
        return x
    if x.dtype in carriers.WIDE_UNSIGNED:
        return carriers.from_numpy(np.minimum(carriers.to_numpy(x), greatest), x.device)
    return x.clamp(max(least, have.min), min(greatest, have.max))
