"""Element types of compressed tensors: integers of 1 to 8 bits and narrow floats."""

from __future__ import annotations

from dataclasses import dataclass

import torch

FLOAT4 = torch.float4_e2m1fn_x2
SCALES_OF_TWO = torch.float8_e8m0fnu
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
PLAIN_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Integers:
    """Integer type of 1 to 8 bits."""

    bits: int
    signed: bool

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return self.low + (1 << self.bits) - 1

    @property
    def container(self) -> torch.dtype:
        """Return the dtype that stores them in eager torch, one byte each."""
        return torch.int8 if self.signed else torch.uint8

    @property
    def name(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


# torch has dtypes of one to seven bits, but does not compute with them.
INTEGERS: dict[torch.dtype, Integers] = {
    getattr(torch, f"{sign}int{bits}"): Integers(bits, signed=not sign)
    for bits in range(1, 9)
    for sign in ("", "u")
}


def integers(dtype: torch.dtype) -> Integers | None:
    """Return the integer type of a dtype of at most 8 bits, else None."""
    return INTEGERS.get(dtype)
