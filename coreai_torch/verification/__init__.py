"""Compare a converted program with torch, and find the first op that diverges."""

from ..numerics.output_error import OutputError
from .draws import TrialPlan
from .subject import Subject
from .verdict import Divergence, Trial, Verdict
from .verifying import Mode, Settings, check_mode, examine, verify

__all__ = [
    "Divergence",
    "Mode",
    "OutputError",
    "Settings",
    "Subject",
    "Trial",
    "TrialPlan",
    "Verdict",
    "check_mode",
    "examine",
    "verify",
]

Plan = TrialPlan  # the former name
