"""Holds a converted program to torch's numbers, and finds the op where they part."""

from .draws import Plan
from .subject import Subject
from .verdict import Divergence, OutputError, Trial, Verdict
from .verifying import Settings, examine, verify

__all__ = [
    "Divergence",
    "OutputError",
    "Plan",
    "Settings",
    "Subject",
    "Trial",
    "Verdict",
    "examine",
    "verify",
]
