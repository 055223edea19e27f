"""Compute random numbers of a seed and a counter, with additions, products and remainders.

The generator is a Feistel network on pairs of residues modulo a prime: `left + (right + key)²`.
The prime is so small that no number exceeds 31 bits: a program gives the same numbers on every
unit, whatever it does when integers overflow, and needs no bitwise op, which devices lack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .draw import Draw

PRIME = 23167  # the largest p with (2p - 2)² + p < 2³¹
PERIOD = PRIME**2  # counters in a stream
_ROUNDS = 10
_KEYED = 4  # rounds whose key depends on the seed
_FINE = 504  # steps between two values of `left`; together with these, 23.5 bits
_PART = PRIME // _FINE + 1

Block: TypeAlias = tuple[Tensor, Tensor]


def blocks(seed: Tensor, start: int, count: Any, stream: int) -> Block:
    """Return `count` pairs of residues, those from counter `start` on."""
    counter = torch.arange(count, dtype=torch.int32) + start
    left = torch.div(counter, PRIME, rounding_mode="floor")
    right = torch.fmod(counter, PRIME)
    high = torch.remainder(torch.div(seed, PRIME, rounding_mode="floor"), PRIME)
    secrets = (torch.remainder(seed, PRIME), high)
    for number in range(_ROUNDS):
        key = _constant(number, stream)
        if number < _KEYED:
            keyed = right + torch.fmod(secrets[number % 2] + key, PRIME)
        else:
            keyed = right + key
        left, right = right, torch.fmod(left + keyed * keyed, PRIME)
    return left, right


def _constant(number: int, stream: int) -> int:
    """Return the constant of a round, another one in each stream."""
    return (7919 * (number + 1) ** 3 + 104729 * stream * (2 * number + 3) + 12345) % PRIME


def sample(seed: Tensor, draw: Draw, size: Sequence[Any]) -> Tensor:
    """Return the numbers of a draw."""
    return numbers(blocks(seed, draw.start, count(draw, size), draw.stream), draw, size)


def count(draw: Draw, size: Sequence[Any]) -> Any:
    """Return the number of pairs that a draw takes: two for each normal number."""
    return math.prod(size) * (2 if draw.kind == "normal" else 1)


def numbers(block: Block, draw: Draw, size: Sequence[Any]) -> Tensor:
    """Return the numbers of a draw, made of its pairs of residues."""
    left, right = block
    if draw.kind == "uniform":
        return _uniform((left.reshape(size), right.reshape(size)), draw.dtype)
    if draw.kind == "normal":
        left, right = left.reshape([2, *size]), right.reshape([2, *size])
        return _normal((left[0], right[0]), (left[1], right[1]), draw.dtype)
    whole = (left * PRIME + right).reshape(size)
    return (torch.fmod(whole, draw.high - draw.low) + draw.low).to(draw.dtype)


def _uniform(block: Block, dtype: torch.dtype) -> Tensor:
    """Return numbers from 0 to 1, without 1 in their dtype."""
    left, _ = block
    if dtype.itemsize == 2:  # rounded to 11 or 8 bits, the largest would be 1
        coarse = 16 if dtype == torch.float16 else 128
        small = torch.div(left, coarse, rounding_mode="floor")
        return small.to(dtype) / ((PRIME - 1) // coarse + 1)
    return _fraction(block, dtype, 0.0)


def _normal(block: Block, other: Block, dtype: torch.dtype) -> Tensor:
    """Return normal numbers by the transform of Box and Muller."""
    radius = torch.sqrt(-2 * torch.log(_fraction(block, dtype, 1.0)))
    return radius * torch.cos(2 * math.pi * _fraction(other, dtype, 0.0))


def _fraction(block: Block, dtype: torch.dtype, offset: float) -> Tensor:
    """Return numbers from 0 to 1, without 1; with an offset of 1 without 0 instead."""
    left, right = block
    fine = torch.div(right, _PART, rounding_mode="floor").to(dtype)
    return (left.to(dtype) + (fine + offset) / _FINE) / PRIME
