"""Where a program will run: an estimate from public reports about devices."""

from .estimate import Border, Change, PlacedOp, Placement, placement, placement_of
from .rules import RULES, PlacementRule

__all__ = [
    "RULES",
    "Border",
    "Change",
    "PlacedOp",
    "Placement",
    "PlacementRule",
    "placement",
    "placement_of",
]
