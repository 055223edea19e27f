"""The half-precision step of a conversion."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..capture.io_plan import plan
from ..capture.prepare import Captured
from ..errors import CalibrationWarning, ConversionError
from ..precision import UNCALIBRATED, Precision, PrecisionReport, to_half_together
from .request import Request

Leaves = list[Any]


def in_half(
    captures: Sequence[tuple[Captured, Request]], precision: Precision
) -> list[tuple[Captured, PrecisionReport]]:
    """Return the captured programs, one for each size, in half precision."""
    samples = _samples(captures, precision)
    programs = [(one.program, given) for (one, _), given in zip(captures, samples, strict=True)]
    found = to_half_together(programs, precision.dtype, precision.keep, precision.half_ports)
    return [
        (replace(one, program=half, plan=plan(half, request.ports.names), source=half), report)
        for (one, request), (half, report) in zip(captures, found, strict=True)
    ]


def _samples(
    captures: Sequence[tuple[Captured, Request]], precision: Precision
) -> list[list[Leaves]]:
    """Return the inputs to measure each program with."""
    examples = [request.leaves(captured) for captured, request in captures]
    if precision.calibration is None:
        warnings.warn(UNCALIBRATED, CalibrationWarning, stacklevel=5)
        return [[example] for example in examples]
    captured, request = captures[0]
    given = [request.leaves(captured, inputs) for inputs in precision.calibration]
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
