"""Values of a random graph: each in eager, in float64, and in float64 with rounding as noise.

The distance between the last two is the effect of rounding on a value, and so the tolerance for
the result of a program; a value with a large distance is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

EPSILON = {torch.float32: 2**-23, torch.float16: 2**-10, torch.bfloat16: 2**-7}
_LARGEST = {torch.float32: 2.0**12, torch.float16: 2.0**8, torch.bfloat16: 2.0**8}
_LARGEST_INTEGER = 2**30  # 64 bits become 32
_UNCERTAIN = 2e-2  # relative to the largest element


@dataclass(frozen=True)
class Step:
    """One op of a graph, and its effect on the precision of the result."""

    name: str
    fn: Callable[..., torch.Tensor]
    operands: tuple[int, ...]
    exact: bool = False  # exact operands give an exact result on any machine
    jumps: bool = False  # a small change of an operand may change the result a lot

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'v{i}' for i in self.operands)})"


@dataclass(frozen=True)
class Value:
    """A value: the result of torch, in float64, and in float64 with noise."""

    eager: torch.Tensor
    true: torch.Tensor
    noisy: torch.Tensor
    exact: bool

    @property
    def tolerance(self) -> float:
        """Return the allowed difference from eager."""
        if self.eager.dtype not in EPSILON or self.exact:
            return 0.0
        scale = _largest(self.true)
        doubt = 10 * _gap(self.noisy, self.true) + 2 * _gap(self.eager.double(), self.true)
        return 4 * EPSILON[self.eager.dtype] * scale + doubt + 1e-6


@dataclass
class Pool:
    """The values that a graph has computed so far."""

    values: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    inputs: int = 0

    def feed(self, tensor: torch.Tensor) -> None:
        wide = _wide(tensor)
        self.values.append(Value(tensor, wide, wide, exact=True))
        self.inputs += 1

    def add(self, step: Step) -> bool:
        """Apply a step, unless torch raises or the result is not comparable."""
        operands = [self.values[i] for i in step.operands]
        if step.jumps and not all(o.exact for o in operands):
            return False
        try:
            eager = step.fn(*(o.eager for o in operands))
            true = _wide(step.fn(*(o.true for o in operands)))
            noisy = _wide(step.fn(*(o.noisy for o in operands)))
        except (RuntimeError, IndexError, ValueError):
            return False
        if true.shape != eager.shape or eager.numel() > 4096 or eager.dtype is torch.float64:
            return False
        exact = all(o.exact for o in operands) and (step.exact or step.jumps)
        exact = exact and torch.equal(eager.double().nan_to_num(), true.double().nan_to_num())
        if not exact:
            noisy = _disturbed(noisy, eager.dtype, len(self.values))
        operand = Value(eager, true, noisy, exact or eager.dtype not in EPSILON)
        if not _is_comparable(operand):
            return False
        self.values.append(operand)
        self.steps.append(step)
        return True

    def ends(self) -> list[int]:
        """Return the values that no step uses."""
        read = {i for step in self.steps for i in step.operands}
        return [i for i in range(self.inputs, len(self.values)) if i not in read]

    def replayed(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Recompute the values that no step uses."""
        values = list(inputs)
        for step in self.steps:
            values.append(step.fn(*(values[i] for i in step.operands)))
        return [values[i] for i in self.ends()]

    def __str__(self) -> str:
        kinds = [
            f"v{i} = {h.eager.dtype} {tuple(h.eager.shape)}" for i, h in enumerate(self.values)
        ]
        steps = [f"input {i}" for i in range(self.inputs)] + [str(s) for s in self.steps]
        return "\n".join(f"{k}: {s}" for k, s in zip(kinds, steps, strict=True))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _disturbed(tensor: torch.Tensor, dtype: torch.dtype, seed: int) -> torch.Tensor:
    if dtype not in EPSILON:
        return tensor
    generator = torch.Generator().manual_seed(seed)
    noise = 2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 1
    return tensor + noise * EPSILON[dtype] * _largest(tensor)


def _is_comparable(operand: Value) -> bool:
    """Return whether a difference in this value would be significant."""
    true, dtype = operand.true, operand.eager.dtype
    if dtype not in EPSILON:
        return not true.numel() or int(true.long().abs().max()) < _LARGEST_INTEGER
    places = true.isfinite()
    if not torch.equal(places, operand.eager.isfinite()):
        return False
    if not torch.equal(places, operand.noisy.isfinite()):
        return False
    if not torch.equal(true.isnan(), operand.eager.isnan()):
        return False
    scale = _largest(true)
    return scale <= _LARGEST[dtype] and operand.tolerance <= _UNCERTAIN * max(scale, 1.0)


def _largest(tensor: torch.Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    both = a.isfinite() & b.isfinite()
    return float((a - b)[both].abs().max()) if both.any() else 0.0
