"""Finds the first operations whose values are not what they should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram

from ..asset.reading import Source
from ..errors import ArgumentTypeError
from .graph import Key, Operation
from .inspector import CoreAIInspector, Engine, Inputs, Inspector, TorchInspector
from .search import Strategy, searched
from .search_strategy import LevelOrderStrategy

Predicate: TypeAlias = Callable[[torch.Tensor], bool]  # whether a value is as it should be


@dataclass(frozen=True)
class ValidationResult:
    """The operations that fail while all that they depend on passes.

    `looked_at` counts the operations that had a value to look at.
    """

    failed_nodes: tuple[Operation, ...]
    looked_at: int
    runs: int

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed_nodes

    def __str__(self) -> str:
        told = "\n".join(f"  {operation}" for operation in self.failed_nodes)
        return f"first to fail:\n{told}" if told else f"{self.looked_at} operations pass"


class Validator:
    """Checks the values of a program's operations, inputs and weights among them."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self.graph = inspector.graph

    async def check_for_nans(
        self, *, inputs: Inputs, strategy: Strategy = LevelOrderStrategy.auto
    ) -> ValidationResult:
        """Find where the first NaN is made."""
        return await self.check(_has_no_nan, inputs=inputs, strategy=strategy)

    async def check_for_infs(
        self, *, inputs: Inputs, strategy: Strategy = LevelOrderStrategy.auto
    ) -> ValidationResult:
        """Find where the first infinity is made; a mask that holds some counts."""
        return await self.check(_has_no_infinity, inputs=inputs, strategy=strategy)

    async def check(
        self,
        predicate: Predicate,
        *,
        inputs: Inputs,
        strategy: Strategy = LevelOrderStrategy.auto,
    ) -> ValidationResult:
        """Find the first operations with a result for which the predicate is false."""
        if not callable(predicate):
            raise ArgumentTypeError(
                f"predicate is {predicate!r}\n  try   lambda value: bool((value < 100).all())"
            )

        async def look(batch: list[Operation]) -> Mapping[Key, bool]:
            keys = [operation.key for operation in batch]
            values = await self._inspector.get_intermediates_for_ops(keys, inputs=inputs)
            return {key: all(predicate(v) for v in held) for key, held in values.items()}

        found = await searched(self.graph, strategy, look)
        return ValidationResult(tuple(found.failed), found.looked_at, found.runs)


def create_validator_for_exported_program(ep: ExportedProgram) -> Validator:
    """A validator of what torch computes; nodes are those of the exported graph."""
    return Validator(TorchInspector(ep))


async def create_validator_for_coreai_program(
    program: Source,
    function_name: str = "main",
    *,
    engine: Engine = "runtime",
    states: Mapping[str, Any] | None = None,
) -> Validator:
    """A validator of what the run time computes, or with `engine="torch"` of what torch does."""
    return Validator(CoreAIInspector(program, function_name, engine=engine, states=states))


def _has_no_nan(value: torch.Tensor) -> bool:
    return not bool(torch.isnan(_wide(value)).any())


def _has_no_infinity(value: torch.Tensor) -> bool:
    return not bool(torch.isinf(_wide(value)).any())


def _wide(value: torch.Tensor) -> torch.Tensor:
    """The narrowest floats know neither test."""
    return value.float() if value.is_floating_point() and value.itemsize == 1 else value
