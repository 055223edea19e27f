"""Predict how long the Linux runtime takes for a call, from the ops of a program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..asset.reading import Block, Op, Program, read
from ..errors import ConversionError, NativeError

# Nanoseconds for each element of the result (coreai-core 1.0.0b3, x86-64). Devices run these ops as
# fast as others; the runtime of Linux interprets them element by element.
_SLOW = {
    "pad": 130.0,
    "interpolate": 180.0,
    "reverse": 60.0,
    "argsort": 1250.0,
    "sort": 1250.0,
    "scatter_along_axis": 55.0,
    "concat": 25.0,
}


def slow_ops(program: Any, entrypoint: str) -> dict[str, float]:
    """Return the seconds that a call takes in each slow op, the slowest first.

    Dynamic sizes count as 1 and loops as one step, so a call may take longer.
    """
    try:
        found = read(program, largest=0)
    except (ConversionError, NativeError, OSError, ValueError):
        return {}  # whoever runs the program describes what is wrong with it
    if entrypoint not in found.functions:
        return {}
    seconds: dict[str, float] = {}
    for op in _executed(found.functions[entrypoint].body, found):
        name = op.name.removeprefix("coreai.")
        if name in _SLOW and op.types:
            size = math.prod(max(1, n) for n in op.types[0].shape)
            seconds[name] = seconds.get(name, 0.0) + _SLOW[name] * size / 1e9
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _executed(block: Block, program: Program) -> Iterator[Op]:
    """Yield the ops of a block, of its regions and of the functions that it calls."""
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from _executed(region, program)
        if op.name == "coreai.invoke":
            yield from _executed(program.functions[op.attributes["callee"]].body, program)
