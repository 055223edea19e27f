"""Half precision: cast a captured program, and keep float32 where half precision fails."""

from .half import PrecisionReport, check_precision, to_half, to_half_together
from .islands import Island
from .options import UNCALIBRATED, Precision

__all__ = [
    "UNCALIBRATED",
    "Island",
    "Precision",
    "PrecisionReport",
    "check_precision",
    "to_half",
    "to_half_together",
]
