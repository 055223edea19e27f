"""Which numbers a compressed element may be: how wide, signed or not, integer or float."""

from __future__ import annotations

from dataclasses import dataclass

import torch

FLOAT4 = torch.float4_e2m1fn_x2
SCALES_OF_TWO = torch.float8_e8m0fnu
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
PLAIN_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Integers:
    """Integers of a width from one bit to a byte."""

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
        """The dtype in which eager torch holds them, a byte each."""
        return torch.int8 if self.signed else torch.uint8

    @property
    def name(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}"


# torch names dtypes of one to seven bits, but computes with none of them.
INTEGERS: dict[torch.dtype, Integers] = {
    getattr(torch, f"{sign}int{bits}"): Integers(bits, signed=not sign)
    for bits in range(1, 9)
    for sign in ("", "u")
}


def integers(dtype: torch.dtype) -> Integers | None:
    """The integers that a dtype stands for, if it is one of at most a byte."""
    return INTEGERS.get(dtype)
