"""Compare the results of a kernel's Metal source with its torch reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ..ir.types import narrow
from ..numerics.compare import largest, mismatches, wrong_elements
from ..numerics.one_op import GraphJudge
from ..numerics.tolerance import METAL_KERNEL, limits
from .reports import Finding

Reference: TypeAlias = Callable[..., Sequence[torch.Tensor]]
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
    name: str, metal: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor
) -> Difference | None:
    """Return the first element of the mask `wrong`, or None."""
    count = int(wrong.sum())
    if not count:
        return None
    index = tuple(int(i) for i in wrong.nonzero()[0])
    return Difference(
        name, index, metal[index].item(), reference[index].item(), count, wrong.numel()
    )


def compared(
    names: Sequence[str],
    metal: Sequence[torch.Tensor],
    reference: Reference,
    given: Sequence[Any],
    tolerance: float | None,
) -> list[Difference]:
    """Return the first difference of each result that differs.

    The limit of each element comes from the error analysis of the reference. A `tolerance`, or a
    table by dtype if the reference cannot be traced, is relative to the largest element instead.
    """
    want = reference(*given)
    masks = None if tolerance is not None else _beyond_analysis(metal, want, reference, given)
    if masks is None:
        masks = [_beyond(m, w, tolerance) for m, w in zip(metal, want, strict=True)]
    rows = zip(names, metal, want, masks, strict=True)
    found = (first_difference(*row) for row in rows)
    return [difference for difference in found if difference is not None]


def _beyond(metal: torch.Tensor, want: torch.Tensor, tolerance: float | None) -> torch.Tensor:
    limit = _LIMITS.get(narrow(want.dtype), 0.0) if tolerance is None else tolerance
    return mismatches(metal, want, limit, largest(want))


def _beyond_analysis(
    metal: Sequence[torch.Tensor],
    want: Sequence[torch.Tensor],
    reference: Reference,
    given: Sequence[Any],
) -> list[torch.Tensor] | None:
    """Return the masks of wrong elements, or None if the reference cannot be traced."""
    if any(m.dtype != narrow(w.dtype) for m, w in zip(metal, want, strict=True)):
        return None
    places = [i for i, value in enumerate(given) if isinstance(value, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        own = list(given)
        for place, value in zip(places, tensors, strict=True):
            own[place] = value.clone()
        return reference(*own)

    tensors = [given[i] for i in places]
    try:
        module = make_fx(call)(*tensors)
        nodes = list(module.graph.nodes)
        judge = GraphJudge(module, dict(zip(nodes, tensors, strict=False)))
        ends = list(nodes[-1].args[0])
        limits = judge.allowed({n: [w] for n, w in zip(ends, want, strict=True)})
    except Exception:  # the reference reads values, or calls what cannot be traced
        return None
    rows = zip(ends, metal, want, strict=True)
    return [wrong_elements(m, w, judge.widened_limit(n, 0, m, w, limits[n][0])) for n, m, w in rows]


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
