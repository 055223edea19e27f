"""Where a program will run: an estimate from public reports about devices."""

from .estimate import (
    TARGETS,
    Border,
    Change,
    PlacedOp,
    Placement,
    RegionCounts,
    count_regions,
    placement,
    placement_of,
)
from .rules import RULES, PlacementRule

__all__ = [
    "RULES",
    "TARGETS",
    "Border",
    "Change",
    "PlacedOp",
    "Placement",
    "PlacementRule",
    "RegionCounts",
    "count_regions",
    "placement",
    "placement_of",
]
