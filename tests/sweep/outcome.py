"""The possible outcomes of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The outcomes, from good to bad; the last five were not attempted."""

    PASS = "pass"
    REFUSED = "refused"  # a ConversionError that says what is not supported
    ERROR = "error"  # any other exception: a defect
    WRONG = "wrong"  # converted, ran and differs from eager: the worst
    ABORT = "abort"  # the process crashed or hung: a defect
    EXPORT_FAILED = "export-failed"  # torch itself cannot run, export or decompose it
    RANDOM = "random"  # draws random numbers, which an input cannot seed
    COMPLEX = "complex"  # takes complex tensors in an entry that also takes real ones
    LAYOUT = "layout"  # takes or returns a sparse, jagged or otherwise not strided tensor
    NO_TENSOR = "no-tensor"  # returns no tensor and no number


ATTEMPTED = (Kind.PASS, Kind.REFUSED, Kind.ERROR, Kind.WRONG, Kind.ABORT)
DEFECTS = (Kind.ERROR, Kind.WRONG, Kind.ABORT)


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one sample, by its index among the samples of that dtype."""

    dtype: str
    index: int
    outcome: Outcome
    sample: str = ""  # as text, if it did not pass
