"""Finds norms, rotations, attention and experts in plain graphs and makes them composites."""

from .composites import lowerings as lowerings_of_composites
from .report import Found, Missed, RecognitionReport
from .rewrite import recognized, wanted_composites

__all__ = [
    "Found",
    "Missed",
    "RecognitionReport",
    "lowerings_of_composites",
    "recognized",
    "wanted_composites",
]
