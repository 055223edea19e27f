"""The error of one output against its reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..formatting import counted


@dataclass(frozen=True)
class OutputError:
    """The comparison of one output or state of one call with torch's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    ok: bool
    tolerance: float  # the largest allowed error over the largest |want|; 0 means exact
    max_abs: float = 0.0
    mean_abs: float = 0.0
    max_rel: float = 0.0  # the largest error over the largest |want|
    cosine: float | None = None  # None if no value is finite, or all are zero
    norm_ratio: float | None = None  # |got| / |want|: a scaled result has a cosine of 1
    psnr: float = math.inf  # in dB; infinite when equal
    argmax_agreement: float | None = None  # share of rows; None if rows have no argmax
    nan_agrees: bool = True
    inf_agrees: bool = True
    worst_index: tuple[int, ...] | None = None
    got: float | complex | None = None  # at the worst index
    want: float | complex | None = None
    limit: float = 0.0  # the error that is allowed at the worst index
    ties: int = 0  # elements that differ because scores are equal within their error
    not_compared: int = 0  # elements that are NaN on both sides
    note: str = ""  # how it was decided, if not by the limits
    problem: str = ""  # why values cannot be compared: different shape or dtype, narrowing
    narrowed: bool = False  # integers of torch exceed 32 bits

    @property
    def compared(self) -> bool:
        """Whether an element was compared; a zero-size tensor has none to compare."""
        return not math.prod(self.shape) or self.not_compared < math.prod(self.shape)

    def __str__(self) -> str:
        """Return one line."""
        if self.problem:
            return f"{self.name}: {self.problem}"
        line = (
            f"{self.name}: largest error {self.max_abs:.3g} (relative {self.max_rel:.3g}, "
            f"allowed {self.tolerance:.3g})"
        )
        if self.norm_ratio is not None:
            line += f", norm ratio {self.norm_ratio:.6g}"
        if self.worst_index is not None and not self.ok:
            line += f" at {list(self.worst_index)}: got {self.got!r}, want {self.want!r}"
            line += f", allowed {self.limit:.3g}" if self.limit else ""
        for agrees, what in ((self.nan_agrees, "NaN"), (self.inf_agrees, "infinity")):
            line += "" if agrees else f"; {what} at different positions"
        if self.ties:
            line += f"; {counted(self.ties, 'element')} tied: the deciding scores are equal within "
            line += "their error"
        if self.not_compared:
            line += f"; {counted(self.not_compared, 'element')} not compared: NaN on both sides"
        return f"{line}; {self.note}" if self.note else line
