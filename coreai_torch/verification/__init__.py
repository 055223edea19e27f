"""Compare a converted program with torch, and find the first op that diverges."""

from ..numerics.output_error import OutputError
from .compression_effect import CompressionEffect, OutputChange, WeightChange
from .draws import TrialPlan
from .subject import Subject
from .unjudged import Unjudged
from .verdict import Divergence, Trial, Verdict
from .verifying import Mode, Settings, check_mode, examine, verify

__all__ = [
    "CompressionEffect",
    "Divergence",
    "Mode",
    "OutputChange",
    "OutputError",
    "Settings",
    "Subject",
    "Trial",
    "TrialPlan",
    "Unjudged",
    "Verdict",
    "WeightChange",
    "check_mode",
    "examine",
    "verify",
]

Plan = TrialPlan  # the former name
