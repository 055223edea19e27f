"""Holds a kernel's Metal source to its reference in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.types import narrow
from ..numerics.compare import largest, mismatches
from ..numerics.tolerance import METAL_KERNEL, limits
from .reports import Finding

_LIMITS = limits(METAL_KERNEL)


@dataclass(frozen=True)
class Difference:
    """The first element in which the source and the reference part, and how many there are."""

    result: str
    index: tuple[int, ...]
    metal: float
    torch: float
    count: int
    elements: int

    def __str__(self) -> str:
        """One sentence."""
        return (
            f"result {self.result!r} differs first at {list(self.index)}: Metal gives "
            f"{self.metal!r}, torch {self.torch!r} ({self.count} of {self.elements} differ)"
        )


@dataclass(frozen=True)
class Verification:
    """What came of comparing; true when nothing was found."""

    kernel: str
    findings: tuple[Finding, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        """Whether the source did what the reference does, and nothing it must not do."""
        return not self.findings and not self.differences

    def __repr__(self) -> str:
        """All that was found, in words."""
        if self:
            return f"Metal kernel {self.kernel!r} agrees with its reference"
        found = "\n".join(f"  {said}" for said in (*self.findings, *self.differences))
        return f"Metal kernel {self.kernel!r} does not do what its reference does\n{found}"


def random_like(asked: torch.Tensor, seed: int) -> torch.Tensor:
    """Random values in the shape and dtype of a tensor on the meta device."""
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = tuple(asked.shape), asked.dtype
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    least = 0 if torch.iinfo(dtype).min == 0 else -100
    return torch.randint(least, 100, shape, generator=generator).to(dtype)


def first_difference(
    name: str, metal: torch.Tensor, reference: torch.Tensor, tolerance: float | None
) -> Difference | None:
    """Where two results part, if they do."""
    wrong = _unequal(metal, reference, tolerance)
    count = int(wrong.sum())
    if not count:
        return None
    index = tuple(int(i) for i in wrong.nonzero()[0])
    return Difference(
        name, index, metal[index].item(), reference[index].item(), count, wrong.numel()
    )


def _unequal(metal: torch.Tensor, reference: torch.Tensor, given: float | None) -> torch.Tensor:
    limit = _LIMITS.get(narrow(reference.dtype), 0.0) if given is None else given
    return mismatches(metal, reference, limit, largest(reference))


def compared(
    names: Sequence[str],
    metal: Sequence[torch.Tensor],
    reference: Sequence[torch.Tensor],
    tolerance: float | None,
) -> list[Difference]:
    """The first difference of each result."""
    pairs = zip(names, metal, reference, strict=True)
    found = (first_difference(n, m, r, tolerance) for n, m, r in pairs)
    return [difference for difference in found if difference is not None]


def draws(arguments: Sequence[Any], trials: int) -> list[list[Any]]:
    """The arguments of each trial: tensors on the meta device are drawn anew, others stay."""
    asked = [isinstance(a, torch.Tensor) and a.is_meta for a in arguments]
    count = trials if any(asked) else 1
    return [
        [
            random_like(a, 1000 * trial + i) if random else a
            for i, (a, random) in enumerate(zip(arguments, asked, strict=True))
        ]
        for trial in range(count)
    ]
