"""Test inputs as data: no tensor exists until a test asks for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class T:
    """The description of a tensor: shape, dtype, range of values or the values themselves."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    low: float = -2.0
    high: float = 2.0
    fixed: bool = False  # sizes stay static in the dynamic run
    values: tuple[Any, ...] | None = None  # repeated to fill the shape
    constant: bool = False  # a buffer of the model rather than an input

    def make(self, seed: int) -> torch.Tensor:
        """Create the tensor; equal seeds give equal tensors."""
        count = int(torch.Size(self.shape).numel())
        if self.values is not None:
            repeats = -(-count // len(self.values)) if self.values else 0
            return torch.tensor((self.values * repeats)[:count]).to(self.dtype).reshape(self.shape)
        generator = torch.Generator().manual_seed(seed)
        if self.dtype == torch.bool:
            return torch.rand(self.shape, generator=generator) > 0.5
        if not self.dtype.is_floating_point and not self.dtype.is_complex:
            return torch.randint(
                int(self.low), int(self.high) + 1, self.shape, generator=generator
            ).to(self.dtype)
        spread = torch.rand(self.shape, generator=generator) * (self.high - self.low) + self.low
        if self.dtype.is_complex:
            return torch.complex(spread, spread.flip(0) if spread.dim() else -spread)
        return spread.to(self.dtype)


def f32(*shape: int, **kw: Any) -> T:
    """A float32 tensor."""
    return T(shape, torch.float32, **kw)


def f16(*shape: int, **kw: Any) -> T:
    """A float16 tensor."""
    return T(shape, torch.float16, **kw)


def bf16(*shape: int, **kw: Any) -> T:
    """A bfloat16 tensor."""
    return T(shape, torch.bfloat16, **kw)


def i32(*shape: int, **kw: Any) -> T:
    """An int32 tensor."""
    return T(shape, torch.int32, **{"low": -9, "high": 9, **kw})


def i64(*shape: int, **kw: Any) -> T:
    """An int64 tensor, which the converter narrows."""
    return T(shape, torch.int64, **{"low": -9, "high": 9, **kw})


def i8(*shape: int, **kw: Any) -> T:
    """An int8 tensor."""
    return T(shape, torch.int8, **{"low": -9, "high": 9, **kw})


def u8(*shape: int, **kw: Any) -> T:
    """A uint8 tensor."""
    return T(shape, torch.uint8, **{"low": 0, "high": 9, **kw})


def b1(*shape: int, **kw: Any) -> T:
    """A boolean tensor."""
    return T(shape, torch.bool, **kw)


def c64(*shape: int, **kw: Any) -> T:
    """A complex64 tensor."""
    return T(shape, torch.complex64, **kw)


# Devices accumulate half precision in a wider type, and so does torch; the runtime on Linux does so
# except in these ops.
NARROW_PRODUCTS = "the runtime accumulates float16 products in float16"
NARROW_SCANS = "the runtime accumulates scans in half precision"


@dataclass(frozen=True)
class Case:
    """One call of an op; tensors are described by `T`, other arguments are passed unchanged."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static_only: str = ""  # why the sizes must stay static, if they must
    one_size: str = ""  # why dynamic sizes are tested only at the exported sizes, if so
    tolerance: tuple[float, float] | None = None  # relative, absolute
    because: str = ""  # the reason for the tolerance
    void: str = ""  # why the installed torch cannot run or export it, if it cannot
    exact: bool = False  # whether it needs the guards of `exact=True`
    by_torch: str = ""  # why torch runs the program instead of the runtime, if it does


def case(
    *args: Any,
    static_only: str = "",
    one_size: str = "",
    tolerance: tuple[float, float] | None = None,
    because: str = "",
    void: str = "",
    exact: bool = False,
    by_torch: str = "",
    **kwargs: Any,
) -> Case:
    """Describe a call with these arguments; `tolerance` needs the reason in `because`."""
    if (tolerance is None) != (not because):
        raise TypeError("pass tolerance and because together")
    return Case(args, kwargs, static_only, one_size, tolerance, because, void, exact, by_torch)
