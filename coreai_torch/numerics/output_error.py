"""How far one output is from its reference."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class OutputError:
    """One output, or one state, of one call, held against torch's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    ok: bool
    tolerance: float  # of |want| + the largest |want|; 0 is exact
    max_abs: float = 0.0
    mean_abs: float = 0.0
    max_rel: float = 0.0  # the largest error over the largest |want|
    cosine: float | None = None  # None where nothing finite is left, or all is zero
    psnr: float = math.inf  # in dB; infinite when equal
    argmax_agreement: float | None = None  # share of rows; None where rows have no argmax
    nan_agrees: bool = True
    inf_agrees: bool = True
    worst_index: tuple[int, ...] | None = None
    got: float | complex | None = None  # at the worst index
    want: float | complex | None = None
    problem: str = ""  # what made comparing impossible: another shape, another dtype

    def __str__(self) -> str:
        """One line."""
        if self.problem:
            return f"{self.name}: {self.problem}"
        said = (
            f"{self.name}: largest error {self.max_abs:.3g} (relative {self.max_rel:.3g}, "
            f"allowed {self.tolerance:.3g})"
        )
        if self.worst_index is not None and not self.ok:
            said += f" at {list(self.worst_index)}: got {self.got!r}, want {self.want!r}"
        for agrees, what in ((self.nan_agrees, "NaN"), (self.inf_agrees, "infinity")):
            said += "" if agrees else f"; {what} in other places"
        return said
