"""Pack integers narrower than a byte into a flat tensor, least significant bit first.

A value may straddle two bytes, and rows are not aligned to bytes: only the end of the tensor is
padded with zeros. The compiler reads constants of such types in this format.
"""

from __future__ import annotations

import math

import torch

WIDEST = 8
_CHUNK = 1 << 20  # values that are packed at a time; a multiple of every group


def pack_uintx(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack unsigned integers of `bits` bits each into a flat tensor of bytes."""
    return _pack_in_chunks(_checked(values, 0, 2**bits - 1, f"uint{bits}"), bits)


def pack_intx(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack signed integers of `bits` bits each, in two's complement, into a tensor of bytes."""
    half = 2 ** (bits - 1)
    return _pack_in_chunks(_checked(values, -half, half - 1, f"int{bits}"), bits)


def unpack_uintx(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Return the first `count` unsigned integers of the packed bytes."""
    each, wide = _group(bits)
    if each * bits == WIDEST:
        shifts = torch.arange(each, dtype=torch.uint8) * bits
        split = (packed.reshape(-1, 1) >> shifts) & (2**bits - 1)
        return split.reshape(-1)[:count]
    if short := -packed.numel() % wide:
        packed = torch.cat([packed.reshape(-1), packed.new_zeros(short)])
    shifts = torch.arange(wide) * WIDEST
    words = (packed.reshape(-1, wide).to(torch.int64) << shifts).sum(1, keepdim=True)
    split = (words >> (torch.arange(each) * bits)) & (2**bits - 1)
    return split.reshape(-1)[:count].to(torch.uint8)


def unpack_intx(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Return the first `count` signed integers of the packed bytes."""
    spare = WIDEST - bits  # shifting left and back right extends the sign
    return (unpack_uintx(packed, bits, count) << spare).view(torch.int8) >> spare


def packed_size(count: int, bits: int) -> int:
    """Return the number of bytes that `count` integers take."""
    return -(-count * bits // WIDEST)


def _group(bits: int) -> tuple[int, int]:
    """Return the smallest group as (values, bytes): eight values of 3 bits fill three bytes."""
    if not 1 <= bits <= WIDEST:
        raise ValueError(f"cannot pack integers of {bits} bits, only of 1 to {WIDEST} bits")
    each = WIDEST // math.gcd(bits, WIDEST)
    return each, each * bits // WIDEST


def _checked(values: torch.Tensor, low: int, high: int, kind: str) -> torch.Tensor:
    """Return the values in a row; raise unless each is an integer in the range."""
    values = values.detach().cpu().reshape(-1)
    if values.numel() == 0:
        return values
    if values.is_floating_point() and not bool((values == values.round()).all()):
        raise ValueError(f"{values.dtype} values with a fraction cannot be packed as {kind}")
    least, most = (v.item() for v in torch.aminmax(values))
    if least < low or most > high:
        wrong = least if least < low else most
        raise ValueError(f"{wrong} does not fit {kind}, whose range is {low} to {high}")
    return values


def _pack_in_chunks(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack a row of integers; temporaries of a large weight would stay in the process."""
    packed = torch.empty(packed_size(values.numel(), bits), dtype=torch.uint8)
    wide = packed_size(_CHUNK, bits)
    for number, chunk in enumerate(values.split(_CHUNK)):
        part = _pack(_to_bytes(chunk), bits)
        packed[number * wide : number * wide + part.numel()] = part
    return packed


def _to_bytes(values: torch.Tensor) -> torch.Tensor:
    if values.dtype not in (torch.uint8, torch.int8):
        values = values.to(torch.int16)
    return values.to(torch.uint8)


def _pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    each, wide = _group(bits)
    size = packed_size(values.numel(), bits)
    values = values & (2**bits - 1)
    if short := -values.numel() % each:
        values = torch.cat([values, values.new_zeros(short)])
    groups = values.reshape(-1, each)
    if wide == 1:
        # Column by column in uint8: shifting by a tensor of int64 takes eight times the memory.
        packed = groups[:, 0].clone()
        for place in range(1, each):
            packed |= groups[:, place] << (place * bits)
        return packed
    words = (groups.to(torch.int64) << (torch.arange(each) * bits)).sum(1, keepdim=True)
    split = (words >> (torch.arange(wide) * WIDEST)) & 0xFF
    return split.to(torch.uint8).reshape(-1)[:size].clone()
