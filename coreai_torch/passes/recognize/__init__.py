"""Finds norms, rotations, attention and experts in plain graphs and makes them composites."""

from .report import Found, Missed, RecognitionReport
from .rewrite import recognized, wanted_composites

__all__ = [
    "Found",
    "Missed",
    "RecognitionReport",
    "recognized",
    "wanted_composites",
]
