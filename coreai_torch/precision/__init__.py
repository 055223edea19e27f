"""Half precision: cast a captured program, and keep float32 where half precision fails."""

from .checking import (
    check_keep,
    check_names,
    check_precision,
    check_unused,
    listed_calibration,
)
from .float32_ops import Float32Ops
from .half import PrecisionReport, set_report, to_half, to_half_together
from .islands import Island
from .options import UNCALIBRATED, Precision

__all__ = [
    "UNCALIBRATED",
    "Float32Ops",
    "Island",
    "Precision",
    "PrecisionReport",
    "check_keep",
    "check_names",
    "check_precision",
    "check_unused",
    "listed_calibration",
    "set_report",
    "to_half",
    "to_half_together",
]
