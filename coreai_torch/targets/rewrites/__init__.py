"""Safe emission: replace constructs that are reported to fail on devices."""

from .applying import TARGETS, apply, chosen
from .rewrite import METADATA, Rewrite, Rewritten, as_metadata
from .table import REWRITES

__all__ = [
    "METADATA",
    "REWRITES",
    "TARGETS",
    "Rewrite",
    "Rewritten",
    "apply",
    "as_metadata",
    "chosen",
]
