"""A model of the zoo as data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Relative to the largest output. The limit of one float32 op times ten: errors add up over the
# layers of a model.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Tensor:
    """An example input, created when the row runs."""

    shape: tuple[int, ...]
    kind: str = "normal"  # or "tokens", "ones", "uniform"
    below: int = 96  # tokens are less than this
    values: Any = None  # the values, as nested lists

    def make(self) -> Any:
        import torch

        if self.values is not None:
            return torch.tensor(self.values)
        if self.kind == "tokens":
            return torch.randint(1, self.below, self.shape)
        if self.kind == "ones":
            return torch.ones(self.shape, dtype=torch.int64)
        if self.kind == "uniform":
            return torch.rand(self.shape)
        return torch.randn(self.shape)


def normal(*shape: int) -> Tensor:
    return Tensor(shape)


def uniform(*shape: int) -> Tensor:
    return Tensor(shape, "uniform")


def tokens(*shape: int, below: int = 96) -> Tensor:
    return Tensor(shape, "tokens", below)


def ones(*shape: int) -> Tensor:
    return Tensor(shape, "ones")


def exactly(values: Any) -> Tensor:
    return Tensor((), values=values)


@dataclass(frozen=True)
class Dynamic:
    """Dynamic axes by input, and inputs of other sizes to run."""

    axes: dict[str, tuple[int, ...]]
    other: dict[str, Tensor]


@dataclass(frozen=True)
class Row:
    """One architecture with random weights: how to build, call and judge it."""

    name: str
    library: str
    family: str
    build: Callable[[], Any]
    inputs: dict[str, Tensor]
    flags: dict[str, Any] = field(default_factory=dict)  # keyword arguments that are not tensors
    dynamic: Dynamic | None = None
    dtype: str = "float32"  # of the model, unless the caller chooses another
    asset: Callable[[Any], Any] | None = None  # the asset, if the library exports
    gain: float = 1.0  # scales convolutions whose initial weights reduce the image to a constant
    tolerance: float = TOLERANCE
    ranked_by: int | None = None  # the column of scores that orders rows; ties come in any order
    refused: str = ""  # part of the error message of a model that cannot be converted
    because: str = ""  # the reason for `refused` or for another tolerance
    source: tuple[str, dict[str, Any]] | None = None  # the class and configuration of a library

    def __post_init__(self) -> None:
        usual = math.isclose(self.tolerance, TOLERANCE) and not self.refused
        if usual != (not self.because):
            raise ValueError(
                f"{self.name}: give `because` exactly if `refused` or `tolerance` is set"
            )
