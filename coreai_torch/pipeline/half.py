"""The half-precision step of a conversion."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..capture.io_plan import plan
from ..capture.prepare import Captured
from ..errors import CalibrationWarning, ConversionError
from ..precision import UNCALIBRATED, PrecisionReport, check_precision, to_half
from .request import Request


@dataclass(frozen=True)
class Half:
    """A request for half precision."""

    precision: str
    keep: str | Sequence[str]
    calibration: Iterable[Any] | None
    half_ports: bool

    def check(self, externalize: Sequence[Any] | None, sizes: Any = None) -> None:
        check_precision(self.precision)
        if sizes is not None:
            raise ConversionError(
                "precision cannot be combined with sizes\n  try   convert model.half() with sizes"
            )
        if externalize:
            raise ConversionError(
                "precision cannot be combined with externalize_modules\n"
                "  try   convert model.half() with externalize_modules, or leave them out"
            )

    def apply(self, captured: Captured, request: Request) -> tuple[Captured, PrecisionReport]:
        """Return the captured program in half precision."""
        program, report = to_half(
            captured.program,
            self._samples(captured, request),
            self.precision,
            self.keep,
            half_ports=self.half_ports,
        )
        made = replace(captured, program=program, plan=plan(program, request.names), source=program)
        return made, report

    def _samples(self, captured: Captured, request: Request) -> list[list[Any]]:
        if self.calibration is None:
            warnings.warn(UNCALIBRATED, CalibrationWarning, stacklevel=4)
            return [request.leaves(captured)]
        samples = [request.leaves(captured, given) for given in self.calibration]
        if not samples:
            raise ConversionError("calibration is empty\n  try   pass at least one tuple of args")
        return samples
