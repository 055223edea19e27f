"""Recognize norms, rotary embeddings, attention and experts in a graph as composites."""

from .recognition_report import Found, Missed, RecognitionReport
from .rewrite import recognized, wanted_composites

__all__ = [
    "Found",
    "Missed",
    "RecognitionReport",
    "recognized",
    "wanted_composites",
]
