"""Compare the results of a kernel's Metal source with its torch reference."""

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
    """The first element in which source and reference differ, and the number of such elements."""

    result: str
    index: tuple[int, ...]
    metal: float
    torch: float
    count: int
    elements: int

    def __str__(self) -> str:
        """Return one sentence."""
        return (
            f"result {self.result!r} differs first at {list(self.index)}: Metal computes "
            f"{self.metal!r}, torch {self.torch!r} ({self.count} of {self.elements} differ)"
        )


@dataclass(frozen=True)
class Verification:
    """Result of a comparison; true if nothing was found."""

    kernel: str
    findings: tuple[Finding, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the source agrees with the reference and has no findings."""
        return not self.findings and not self.differences

    def __repr__(self) -> str:
        """Return a list of all findings and differences."""
        if self:
            return f"Metal kernel {self.kernel!r} agrees with its reference"
        found = "\n".join(f"  {item}" for item in (*self.findings, *self.differences))
        return f"Metal kernel {self.kernel!r} does not agree with its reference\n{found}"


def random_like(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Return random values with the shape and dtype of a tensor on the meta device."""
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    least = 0 if torch.iinfo(dtype).min == 0 else -100
    return torch.randint(least, 100, shape, generator=generator).to(dtype)


def first_difference(
    name: str, metal: torch.Tensor, reference: torch.Tensor, tolerance: float | None
) -> Difference | None:
    """Return the first difference of two results, or None."""
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
    """Return the first difference of each result that differs."""
    pairs = zip(names, metal, reference, strict=True)
    found = (first_difference(n, m, r, tolerance) for n, m, r in pairs)
    return [difference for difference in found if difference is not None]


def draws(arguments: Sequence[Any], trials: int) -> list[list[Any]]:
    """Return the arguments of each trial; tensors on the meta device become random values."""
    is_random = [isinstance(a, torch.Tensor) and a.is_meta for a in arguments]
    count = trials if any(is_random) else 1
    return [
        [
            random_like(a, 1000 * trial + i) if random else a
            for i, (a, random) in enumerate(zip(arguments, is_random, strict=True))
        ]
        for trial in range(count)
    ]
