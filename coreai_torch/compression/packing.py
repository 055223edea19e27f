"""Bits in, bytes out: integers narrower than a byte, flat, the least significant bit first.

A value may straddle two bytes, and a row need not end with one: only the tensor as a whole is
filled up with zeros. This is how the compiler reads constants of such types.
"""

from __future__ import annotations

import math

import torch

WIDEST = 8


def pack_uintx(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Unsigned integers of `bits` bits each as a flat tensor of bytes."""
    return _packed(_fitting(values, 0, 2**bits - 1, f"uint{bits}"), bits)


def pack_intx(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Signed integers of `bits` bits each, in two's complement, as a flat tensor of bytes."""
    half = 2 ** (bits - 1)
    return _packed(_fitting(values, -half, half - 1, f"int{bits}"), bits)


def unpack_uintx(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """The first `count` unsigned integers that the bytes hold."""
    each, wide = _group(bits)
    if each * bits == WIDEST:
        shifts = torch.arange(each, dtype=torch.uint8) * bits
        split = (packed.reshape(-1, 1) >> shifts) & (2**bits - 1)
        return split.reshape(-1)[:count]
    if short := -packed.numel() % wide:
        packed = torch.cat([packed.reshape(-1), packed.new_zeros(short)])
    places = torch.arange(wide) * WIDEST
    words = (packed.reshape(-1, wide).to(torch.int64) << places).sum(1, keepdim=True)
    split = (words >> (torch.arange(each) * bits)) & (2**bits - 1)
    return split.reshape(-1)[:count].to(torch.uint8)


def unpack_intx(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """The first `count` signed integers that the bytes hold."""
    spare = WIDEST - bits  # shifted up and down again, the sign bit fills the spare ones
    return (unpack_uintx(packed, bits, count) << spare).view(torch.int8) >> spare


def packed_size(count: int, bits: int) -> int:
    """The bytes that `count` integers take."""
    return -(-count * bits // WIDEST)


def _group(bits: int) -> tuple[int, int]:
    """How many values fill how many whole bytes: eight of 3 bits fill three."""
    if not 1 <= bits <= WIDEST:
        raise ValueError(f"integers of {bits} bits: from 1 to {WIDEST} can be packed")
    each = WIDEST // math.gcd(bits, WIDEST)
    return each, each * bits // WIDEST


def _fitting(values: torch.Tensor, low: int, high: int, kind: str) -> torch.Tensor:
    """The values as bytes, if each of them is a whole number of that kind."""
    values = values.detach().cpu()
    if values.numel() == 0:
        return values.reshape(-1).to(torch.uint8)
    if values.is_floating_point() and not bool((values == values.round()).all()):
        raise ValueError(f"values of dtype {values.dtype} that are not all whole cannot be {kind}")
    least, most = (v.item() for v in torch.aminmax(values))
    if least < low or most > high:
        wrong = least if least < low else most
        raise ValueError(f"{wrong} does not fit {kind}, which holds {low} to {high}")
    if values.dtype not in (torch.uint8, torch.int8):
        values = values.to(torch.int16)
    return values.to(torch.uint8).reshape(-1)


def _packed(values: torch.Tensor, bits: int) -> torch.Tensor:
    each, wide = _group(bits)
    size = packed_size(values.numel(), bits)
    values = values & (2**bits - 1)
    if short := -values.numel() % each:
        values = torch.cat([values, values.new_zeros(short)])
    groups = values.reshape(-1, each)
    if wide == 1:
        # One column after the other, in bytes: a tensor of shifts would take each eight times.
        packed = groups[:, 0].clone()
        for place in range(1, each):
            packed |= groups[:, place] << (place * bits)
        return packed
    words = (groups.to(torch.int64) << (torch.arange(each) * bits)).sum(1, keepdim=True)
    split = (words >> (torch.arange(wide) * WIDEST)) & 0xFF
    return split.to(torch.uint8).reshape(-1)[:size].clone()
