"""Describe the random numbers that a program takes or computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import fx

from ...errors import ArgumentTypeError

SEED = "seed"
_META = "random_draw"  # the key under which the placeholder of a draw or a seed has its `Draw`
_SEEDS = 2**31 - 1


class Randomness(StrEnum):
    """Where a converted program takes its random numbers from."""

    INPUT = "input"
    SEED = "seed"


@dataclass(frozen=True)
class Draw:
    """One tensor of random numbers: `uniform` from 0 to 1, `normal`, or `integers`; or a seed.

    In a program with a seed, the numbers are those from `start` in a stream.
    """

    kind: str
    dtype: torch.dtype
    size: Sequence[Any] = ()
    low: int = 0
    high: int = 1  # exclusive
    start: int = 0
    stream: int = 0

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        """Return numbers of this kind."""
        if self.kind == "uniform":
            # In float64, as float16 and bfloat16 would be rounded to 1.
            wide = torch.rand(list(shape), generator=generator, dtype=torch.float64)
            steps = 2 / torch.finfo(self.dtype).eps
            return ((wide * steps).floor() / steps).to(self.dtype)
        if self.kind == "normal":
            return torch.randn(list(shape), generator=generator).to(self.dtype)
        high = _SEEDS if self.kind == SEED else self.high
        return torch.randint(self.low, high, list(shape), generator=generator, dtype=self.dtype)

    def record(self) -> dict[str, Any]:
        """Return the description that the metadata of an asset has."""
        bounds = {"low": self.low, "high": self.high} if self.kind == "integers" else {}
        return {"kind": self.kind, **bounds}


def draw_of(node: fx.Node) -> Draw | None:
    """Return what a placeholder is filled with, or None for an argument of the model."""
    found: Draw | None = node.meta.get(_META)
    return found


def mark(placeholder: fx.Node, draw: Draw) -> None:
    """Record that an input is filled with random numbers or a seed."""
    placeholder.meta[_META] = draw


def check_randomness(given: Any) -> Randomness | None:
    """Return the source of random numbers, or None if the model may not draw any."""
    if given is None or given in list(Randomness):
        return None if given is None else Randomness(given)
    raise ArgumentTypeError(
        f"random is {given!r}\n  try   pass 'input', with which random numbers become inputs, or "
        "'seed', with which the program computes them of a seed"
    )
