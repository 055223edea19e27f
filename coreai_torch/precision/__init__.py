"""Half precision: cast a captured program, and keep float32 where half precision fails."""

from .half import PrecisionReport, check_precision, to_half
from .islands import Island

__all__ = ["Island", "PrecisionReport", "check_precision", "to_half"]
