"""Divide the ops of a dataflow graph into runs on one unit, with as few changes as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """A run of ops on one unit, by their numbers."""

    unit: str
    ops: tuple[int, ...]


def divide(units: Sequence[str], users: Sequence[Sequence[int]]) -> list[Region]:
    """Return the regions in an order in which they can run.

    `units` has the unit of each op, `users` the ops that read its results. Each region takes all
    ops of its unit that can run by then, which needs the fewest regions for a given first unit.
    """
    starts = dict.fromkeys(units)
    found = [_from(start, units, users) for start in starts]
    return min(found, key=len, default=[])


def _from(start: str, units: Sequence[str], users: Sequence[Sequence[int]]) -> list[Region]:
    waits = [0] * len(units)
    for readers in users:
        for reader in readers:
            waits[reader] += 1
    ready: dict[str, deque[int]] = {unit: deque() for unit in dict.fromkeys(units)}
    for op, count in enumerate(waits):
        if count == 0:
            ready[units[op]].append(op)
    regions, unit, left = [], start, len(units)
    while left:
        run = _drain(ready, unit, units, users, waits)
        left -= len(run)
        if run:
            regions.append(Region(unit, tuple(run)))
        unit = _next(ready, unit)
    return regions


def _drain(
    ready: dict[str, deque[int]],
    unit: str,
    units: Sequence[str],
    users: Sequence[Sequence[int]],
    waits: list[int],
) -> list[int]:
    """Run all ops of a unit whose operands are there, and those that become ready."""
    run, queue = [], ready[unit]
    while queue:
        op = queue.popleft()
        run.append(op)
        for user in users[op]:
            waits[user] -= 1
            if waits[user] == 0:
                ready[units[user]].append(user)
    return run


def _next(ready: dict[str, deque[int]], unit: str) -> str:
    """Return the unit that has the most ops to run."""
    return max(ready, key=lambda name: len(ready[name]) if name != unit else -1)
