"""Public names of the pass that recognizes composite ops in a plain graph."""

from .passes.recognize import Found, Missed, RecognitionReport

__all__ = ["Found", "Missed", "RecognitionReport"]
