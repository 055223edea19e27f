"""A family of lowerings: the declared growth of its cost, and a call that measures it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GROWTH: dict[str, Callable[[float], float]] = {
    "1": lambda n: 1.0,
    "log n": math.log2,
    "n": lambda n: n,
    "n log n": lambda n: n * math.log2(n),
    "log^2 n": lambda n: math.log2(n) ** 2,
    "n log^2 n": lambda n: n * math.log2(n) ** 2,
    "n^(4/3)": lambda n: n ** (4 / 3),
    "n^2": lambda n: n**2,
    "n^3": lambda n: n**3,
    "n^4": lambda n: n**4,
}

FACTOR = 8  # between the two sizes at which a family is measured

Call = tuple[Any, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Family:
    """Lowerings that share an algorithm, and a call of them with one size.

    `lowers` names ops that the call contains, without `aten::` and the overload; a test checks
    this. `like` names ops that are not in the call but have the same lowering, or an algorithm of
    the same cost. `sizes` says whether n is static, dynamic or measured both ways.
    """

    ops: str
    time: str
    call: Callable[[int], Call]
    n: int = 512  # measured at n and 8 n
    program: str = "1"
    constants: str = "1"
    memory: str = "n"
    reason: str = ""
    lowers: str = ""
    like: str = ""
    sizes: str = "static"

    @property
    def names(self) -> set[str]:
        """The ops whose cost this family declares."""
        return {*self.lowers.split(), *self.like.split()}


def linear(
    lowers: str, call: Callable[[int], Call], *, n: int = 1_024, like: str = "", sizes: str = "both"
) -> Family:
    """Return a family that is linear in n; its constants may be as large as its inputs."""
    names = " ".join(lowers.split())
    title = names if len(names) < 60 else f"{names[:60].rpartition(' ')[0]} ..."
    return Family(title, "n", call, n, constants="n", lowers=lowers, like=like, sizes=sizes)


def of(function: Callable[..., Any], *shape: int) -> Callable[[int], Call]:
    """Return a call with one float tensor, whose last axis is n."""
    return lambda n: (function, (torch.randn(*shape, n),))


def every(names: str) -> Callable[..., list[Any]]:
    """Return a function that calls each op with the same arguments."""
    ops = [getattr(torch.ops.aten, name) for name in names.split()]
    return lambda *args: [op(*args) for op in ops]
