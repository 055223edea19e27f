"""The half-precision step of a conversion."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..capture.io_plan import plan
from ..capture.prepare import Captured
from ..errors import CalibrationWarning, ConversionError
from ..precision import (
    UNCALIBRATED,
    PrecisionReport,
    check_keep,
    check_precision,
    check_unused,
    listed_calibration,
    to_half_together,
)
from .request import Request

Leaves = list[Any]


@dataclass(frozen=True)
class Half:
    """A request for half precision."""

    precision: str
    keep: str | Sequence[str]
    calibration: Sequence[Any] | None
    half_ports: bool

    @classmethod
    def of(
        cls,
        precision: str | None,
        keep: str | Sequence[str],
        calibration: Iterable[Any] | None,
        half_ports: bool,
    ) -> Half | None:
        """Return the request after a check of the options; None without a precision."""
        if precision is None:
            check_unused(keep, calibration, half_ports)
            return None
        check_precision(precision)
        check_keep(keep)
        given = None if calibration is None else listed_calibration(calibration)
        return cls(precision, keep, given, half_ports)

    def apply(
        self, captures: Sequence[tuple[Captured, Request]]
    ) -> list[tuple[Captured, PrecisionReport]]:
        """Return the captured programs, one for each size, in half precision."""
        samples = self._samples(captures)
        programs = [(one.program, given) for (one, _), given in zip(captures, samples, strict=True)]
        found = to_half_together(programs, self.precision, self.keep, self.half_ports)
        return [
            (replace(one, program=half, plan=plan(half, request.names), source=half), report)
            for (one, request), (half, report) in zip(captures, found, strict=True)
        ]

    def _samples(self, captures: Sequence[tuple[Captured, Request]]) -> list[list[Leaves]]:
        """Return the inputs to measure each program with."""
        examples = [request.leaves(captured) for captured, request in captures]
        if self.calibration is None:
            warnings.warn(UNCALIBRATED, CalibrationWarning, stacklevel=5)
            return [[example] for example in examples]
        captured, request = captures[0]
        given = [request.leaves(captured, inputs) for inputs in self.calibration]
        if len(captures) == 1:
            return [given]
        return _by_size(given, examples)


def _by_size(given: Sequence[Leaves], examples: Sequence[Leaves]) -> list[list[Leaves]]:
    """Return the inputs that have the sizes of each example; the example if there are none."""
    sizes = [_sizes(example) for example in examples]
    for place, leaves in enumerate(given):
        if _sizes(leaves) not in sizes:
            raise ConversionError(
                f"calibration: input {place} has sizes {_sizes(leaves)}, which are not in sizes\n"
                f"  try   pass inputs of sizes {' or '.join(map(str, sizes))}"
            )
    return [
        [leaves for leaves in given if _sizes(leaves) == wanted] or [example]
        for wanted, example in zip(sizes, examples, strict=True)
    ]


def _sizes(leaves: Leaves) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]
