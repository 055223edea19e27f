"""Compare all intermediate values of two programs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from ..asset import reading
from ..numerics.compare import is_close, max_error
from .comparator import create_comparator_for_programs
from .inspector import Inputs
from .modules import UNATTRIBUTED

_RELATIVE, _ABSOLUTE = 1e-3, 1e-5


@dataclass(frozen=True)
class IntermediateComparison:
    """A value of both programs; `max_diff` is None if the difference is not finite."""

    name: str
    module: str
    max_diff: float | None
    passed: bool
    operation_id: int | None = None


@dataclass(frozen=True)
class IntermediatesReport:
    """The comparison of every value that both programs have, in order."""

    comparisons: tuple[IntermediateComparison, ...]

    @property
    def failures(self) -> tuple[IntermediateComparison, ...]:
        """The values that differ."""
        return tuple(one for one in self.comparisons if not one.passed)

    def by_module(self) -> dict[str, list[IntermediateComparison]]:
        """Return the comparisons by module."""
        found: dict[str, list[IntermediateComparison]] = defaultdict(list)
        for one in self.comparisons:
            found[one.module].append(one)
        return dict(found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "comparisons": [asdict(one) for one in self.comparisons],
            "failures": [one.name for one in self.failures],
        }


async def compare_program_intermediates(
    exported_program: ExportedProgram,
    program: reading.Source,
    inputs: Inputs,
    *,
    function_name: str = "main",
    specialization_options: Any = None,
    rtol: float = _RELATIVE,
    atol: float = _ABSOLUTE,
    exclude_multi_output: bool = True,
) -> IntermediatesReport:
    """Run both programs on the same inputs, and compare the values of paired operations.

    `specialization_options` is for devices; the runtime of Linux takes none.
    """
    comparator = await create_comparator_for_programs(
        source_program=exported_program,
        target_program=program,
        target_entry_point=function_name,
    )
    pairs = comparator.pairs
    want, got = await comparator.values(list(pairs), inputs=inputs)
    rows = []
    for operation in comparator.source_graph:
        key, other = operation.key, pairs.get(operation.key)
        ours, theirs = want.get(key, ()), () if other is None else got.get(other, ())
        several = len(ours) != 1 or len(theirs) != 1
        if not ours or not theirs or len(ours) != len(theirs) or (several and exclude_multi_output):
            continue
        both = list(zip(ours, theirs, strict=True))
        if all(a.shape == b.shape for a, b in both):
            number = other if isinstance(other, int) else None
            module = operation.module or UNATTRIBUTED
            rows.append(_compared(str(key), module, both, rtol, atol, number))
    return IntermediatesReport(tuple(rows))


def compare_intermediates(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    rtol: float = _RELATIVE,
    atol: float = _ABSOLUTE,
) -> IntermediatesReport:
    """Compare saved values by name, such as two results of `load_intermediates`."""
    rows = []
    for name in before:
        both = list(zip(_tensors(before[name]), _tensors(after.get(name, ())), strict=False))
        if both and all(a.shape == b.shape for a, b in both):
            rows.append(_compared(name, UNATTRIBUTED, both, rtol, atol))
    return IntermediatesReport(tuple(rows))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    yield from (value if isinstance(value, tuple | list) else [value])


def _compared(
    name: str,
    module: str,
    both: list[tuple[torch.Tensor, torch.Tensor]],
    rtol: float,
    atol: float,
    number: int | None = None,
) -> IntermediateComparison:
    largest = max(max_error(b, a) for a, b in both)
    passed = all(is_close(b, a, rtol=rtol, atol=atol) for a, b in both)
    difference = largest if math.isfinite(largest) else None
    return IntermediateComparison(name, module, difference, passed, number)
