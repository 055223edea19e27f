"""Apply the rewrites of a target to an open module, and count the regions before and after."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.build import Build
from . import placing, rewrites
from .rewrites import Rewrite, Rewritten


class Rewriting:
    """A step of a conversion: `done` has the places, `regions` the estimated counts."""

    def __init__(self, unit: str | None, chosen: Sequence[Rewrite]) -> None:
        self._unit = unit if unit in placing.TARGETS else ""
        self._chosen = chosen
        self.done: list[Rewritten] = []
        self.regions: placing.RegionCounts | None = None

    def __call__(self, build: Build) -> None:
        """Rewrite the module."""
        before = self._count(build)
        self.done = rewrites.apply(build, self._chosen)
        if self._unit:
            after = self._count(build) if self.done else before
            self.regions = placing.RegionCounts(self._unit, before, after)

    def _count(self, build: Build) -> int:
        return placing.count_regions(build.module, self._unit) if self._unit else 0
