"""Draw the choices of a random graph with hypothesis, which also shrinks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pool import Pool, Value

DTYPES = (
    torch.float32,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.int8,
    torch.uint8,
)


class Choices:
    """Draw numbers, and derive all other choices from numbers."""

    def __init__(self, number: Callable[[int, int], int], pool: Pool):
        self.number, self.pool = number, pool

    def flag(self) -> bool:
        return bool(self.number(0, 1))

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[self.number(0, len(options) - 1)]

    def value(self, fits: Callable[[Value], bool] = lambda _: True) -> int | None:
        """Return the index of a value that fits; later values are likelier, so graphs get deep."""
        places = [i for i, operand in enumerate(self.pool.values) if fits(operand)]
        if not places:
            return None
        back = self.number(0, 2 * len(places) - 1)
        return places[-1 - back // 2] if back % 2 else places[-1 - min(back // 2, 1) % len(places)]

    def eager(self, place: int) -> torch.Tensor:
        return self.pool.values[place].eager

    def axis(self, place: int) -> int:
        """Return an axis of a value, often negative."""
        rank = self.eager(place).dim()
        return self.number(-rank, rank - 1)

    def axes(self, place: int) -> list[int]:
        rank = self.eager(place).dim()
        return [d - rank if self.flag() else d for d in range(rank) if self.flag()]

    def scalar(self) -> int | float:
        """Return a Python number; halves are exact in every dtype."""
        number = self.number(-6, 6)
        return number if self.flag() else number / 2

    def tensor(self, shape: Sequence[int], dtype: torch.dtype, special: bool = False) -> Any:
        """Return a tensor of halves, integers or booleans, with infinities and NaN on request."""
        generator = torch.Generator().manual_seed(self.number(0, 99))
        numbers = torch.randint(-8, 9, tuple(shape), generator=generator)
        if dtype is torch.bool:
            return numbers > 0
        if not dtype.is_floating_point:
            return (numbers % 9 if dtype is torch.uint8 else numbers).to(dtype)
        made = (numbers / 2).to(dtype)
        if special and made.numel():
            flat = made.flatten()
            flat[0], flat[-1] = float("inf"), float("nan")
            flat[len(flat) // 2] = float("-inf")
            made = flat.reshape(made.shape)
        return made
