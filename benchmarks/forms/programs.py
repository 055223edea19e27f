"""All measured programs, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from . import calls_computing, calls_moving, models
from .inputs import Calls
from .program import Call, Made, Program

FAMILIES: dict[str, Calls] = {
    "pad": calls_moving.PADS,
    "resize": calls_moving.RESIZES,
    "move": calls_moving.MOVES,
    "select": calls_moving.SELECTIONS,
    "index": calls_moving.INDICES,
    "elementwise": calls_computing.ELEMENTWISE,
    "reduce": calls_computing.REDUCTIONS,
    "pool": calls_computing.POOLS,
    "norm": calls_computing.NORMS,
    "attention": calls_computing.ATTENTION,
    "layer": calls_computing.LAYERS,
    "loss": calls_computing.LOSSES,
}
# Calls without float inputs, which are the same in every precision.
_INTEGERS = (
    *("cumsum of ids", "one_hot", "floor division of ids", "remainder of ids", "outer comparison"),
)


def _maker(calls: Calls, name: str) -> Callable[[], Made]:
    def make() -> Made:
        function, args = calls[name]()
        return function if isinstance(function, nn.Module) else Call(function), args

    return make


CALLS = tuple(
    Program(f"{family}: {name}", family, _maker(calls, name), half=name not in _INTEGERS)
    for family, calls in FAMILIES.items()
    for name in calls
)
PROGRAMS: dict[str, Program] = {p.name: p for p in (*CALLS, *models.PROGRAMS)}
