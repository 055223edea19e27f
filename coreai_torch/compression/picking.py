"""Pick a scheme per weight from a sensitivity table, for a size or for an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConversionError
from ..formatting import size as shown
from .measuring import Sensitivity, SensitivityRow

# Bytes of a program besides its weights: a fixed part, and a part per weight. Decoders and
# perceptrons have 1,200 to 1,450 bytes per weight, with their scales, names and other ops.
PROGRAM_BYTES, LAYER_BYTES = 4_000, 1_800


@dataclass(frozen=True)
class Option:
    """A scheme for one weight; `row` is None if the weight is left unchanged."""

    bytes: int
    cost: float  # costs of different weights add up
    row: SensitivityRow | None = None


Choice = dict[str, Option]


def options(table: Sensitivity, sizes: dict[str, int]) -> dict[str, list[Option]]:
    """Return the options of each weight, those that change the outputs least first."""
    found = {name: [Option(size, 0.0)] for name, size in sizes.items()}
    for row in table.rows:
        if row.weight in found:
            cost = max(row.error, 0.0) if table.additive else row.error**2
            found[row.weight].append(Option(row.bytes, cost, row))
    return {name: _hull(listed) for name, listed in found.items()}


def _hull(listed: Sequence[Option]) -> list[Option]:
    """Return the options on the lower convex hull of cost over bytes, from large to small."""
    hull: list[Option] = []
    for option in sorted(listed, key=lambda one: (-one.bytes, one.cost)):
        while hull and hull[-1].cost >= option.cost:
            hull.pop()
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-2], option):
            hull.pop()
        if not hull or option.bytes < hull[-1].bytes:
            hull.append(option)
    return hull


def _slope(larger: Option, smaller: Option) -> float:
    """Return the cost per byte that is saved."""
    saved = larger.bytes - smaller.bytes
    return (smaller.cost - larger.cost) / saved if saved else float("inf")


def pick(
    choices: dict[str, list[Option]],
    *,
    target_bytes: int | None = None,
    max_cost: float | None = None,
) -> Choice:
    """Return one option per weight: the least cost within a size, or the least size within a cost.

    Steps to the next smaller option are taken in the order of their cost per byte. A step that
    exceeds the cost ends the steps of its weight; a size that is reached ends all.
    """
    places = dict.fromkeys(choices, 0)
    steps = sorted(
        (_slope(listed[at], listed[at + 1]), name, at)
        for name, listed in choices.items()
        for at in range(len(listed) - 1)
    )
    total = sum(listed[0].bytes for listed in choices.values())
    cost = sum(listed[0].cost for listed in choices.values())
    for _, name, at in steps:
        if target_bytes is not None and total <= target_bytes:
            break
        if places[name] != at:  # an earlier step of this weight cost too much
            continue
        here, there = choices[name][at], choices[name][at + 1]
        if max_cost is not None and cost + there.cost - here.cost > max_cost:
            continue
        places[name] = at + 1
        total += there.bytes - here.bytes
        cost += there.cost - here.cost
    if target_bytes is not None:
        _return_spare(choices, places, target_bytes - total)
    return {name: choices[name][at] for name, at in places.items()}


def _return_spare(choices: dict[str, list[Option]], places: dict[str, int], spare: int) -> None:
    """Raise weights to a larger option while it fits, those with the largest gain first."""
    while True:
        fitting = [
            (choices[name][at].cost - choices[name][higher].cost, name, higher)
            for name, at in places.items()
            for higher in range(at)
            if choices[name][higher].bytes - choices[name][at].bytes <= spare
        ]
        if not fitting or max(fitting)[0] <= 0:
            return
        _, name, higher = max(fitting)
        spare -= choices[name][higher].bytes - choices[name][places[name]].bytes
        places[name] = higher


def check_reached(choice: Choice, available: int, target: int) -> None:
    """Raise if even the smallest options exceed the target."""
    total = sum(option.bytes for option in choice.values())
    if total <= available:
        return
    least = target + total - available
    raise ConversionError(
        f"the target of {shown(target)} cannot be reached: the smallest schemes take "
        f"{shown(least)} ({least:,} bytes)\n"
        "  try   pass a larger target_bytes, or schemes with fewer bits"
    )
