"""Holds a converted program to torch's numbers, and finds the op where they part."""

from .draws import Plan
from .verdict import Divergence, OutputError, Trial, Verdict
from .verifying import verify

__all__ = ["Divergence", "OutputError", "Plan", "Trial", "Verdict", "verify"]
