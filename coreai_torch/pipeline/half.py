"""The half-precision step of a conversion."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture.io_plan import plan
from ..capture.prepare import Captured
from ..errors import CalibrationWarning, ConversionError
from ..precision import PrecisionReport, check_precision, to_half
from ..verification import Subject
from .request import Request

_UNCALIBRATED = (
    "half precision was measured on the example inputs alone: other inputs may overflow\n"
    "  try   pass calibration=[(x,), ...] with typical inputs\n"
    "  code  CAT404"
)


@dataclass(frozen=True)
class Half:
    """A request for half precision."""

    precision: str
    keep: str | Sequence[str]
    calibration: Iterable[Any] | None
    half_ports: bool

    def check(self, externalize: Sequence[Any] | None) -> None:
        check_precision(self.precision)
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
        return Captured(program, plan(program, request.names), program), report

    def _samples(self, captured: Captured, request: Request) -> list[list[Any]]:
        subject = Subject(captured.program, captured.plan, captured.reference)
        if self.calibration is None:
            warnings.warn(_UNCALIBRATED, CalibrationWarning, stacklevel=4)
            return [subject.leaves(request.args, request.kwargs)]
        samples = [_leaves(subject, given) for given in self.calibration]
        if not samples:
            raise ConversionError("calibration is empty\n  try   pass at least one tuple of args")
        return samples


def _leaves(subject: Subject, given: Any) -> list[Any]:
    """Return one calibration input as a flat list; a dict may name positional arguments too."""
    if isinstance(given, Mapping):
        names = [argument.name for argument in subject.arguments]
        if set(given) == set(names):
            return [given[name] for name in names]
        return subject.leaves((), given)
    return subject.leaves(given if isinstance(given, tuple | list) else (given,), {})
