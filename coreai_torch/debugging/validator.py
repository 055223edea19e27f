"""Find the first operations whose values fail a check."""

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
from .search import Strategy, run_search
from .search_strategy import LevelOrderStrategy

Predicate: TypeAlias = Callable[[torch.Tensor], bool]  # whether a value is valid


@dataclass(frozen=True)
class ValidationResult:
    """The operations that fail although all operations that they depend on pass.

    `looked_at` counts the operations whose values were checked.
    """

    failed_nodes: tuple[Operation, ...]
    looked_at: int
    runs: int

    @property
    def ok(self) -> bool:
        """Whether no operation failed."""
        return not self.failed_nodes

    def __str__(self) -> str:
        lines = "\n".join(f"  {operation}" for operation in self.failed_nodes)
        return f"first to fail:\n{lines}" if lines else f"{self.looked_at} operations pass"


class Validator:
    """Checks the values of a program's operations, inputs and weights included."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self.graph = inspector.graph

    async def check_for_nans(
        self, *, inputs: Inputs, strategy: Strategy = LevelOrderStrategy.auto
    ) -> ValidationResult:
        """Find the first operations with a NaN."""
        return await self.check(_has_no_nan, inputs=inputs, strategy=strategy)

    async def check_for_infs(
        self, *, inputs: Inputs, strategy: Strategy = LevelOrderStrategy.auto
    ) -> ValidationResult:
        """Find the first operations with an infinity; masks with infinities count."""
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
                f"predicate is {predicate!r}, not a function\n"
                "  try   pass lambda value: bool((value < 100).all())"
            )

        async def look(batch: list[Operation]) -> Mapping[Key, bool]:
            keys = [operation.key for operation in batch]
            values = await self._inspector.get_intermediates_for_ops(keys, inputs=inputs)
            return {key: all(map(predicate, results)) for key, results in values.items()}

        found = await run_search(self.graph, strategy, look)
        return ValidationResult(tuple(found.failed), found.looked_at, found.runs)


def create_validator_for_exported_program(ep: ExportedProgram) -> Validator:
    """Create a validator of the values that torch computes for an exported graph."""
    return Validator(TorchInspector(ep))


async def create_validator_for_coreai_program(
    program: Source,
    function_name: str = "main",
    *,
    engine: Engine = "runtime",
    states: Mapping[str, Any] | None = None,
) -> Validator:
    """Create a validator of a program's values, on the runtime or with `engine="torch"`."""
    return Validator(CoreAIInspector(program, function_name, engine=engine, states=states))


def _has_no_nan(value: torch.Tensor) -> bool:
    return not bool(torch.isnan(_wide(value)).any())


def _has_no_infinity(value: torch.Tensor) -> bool:
    return not bool(torch.isinf(_wide(value)).any())


def _wide(value: torch.Tensor) -> torch.Tensor:
    """Widen 8-bit floats, for which torch has neither isnan nor isinf."""
    return value.float() if value.is_floating_point() and value.itemsize == 1 else value
