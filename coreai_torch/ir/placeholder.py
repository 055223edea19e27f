"""Values without a source, for a graph that is built to find errors and then dropped."""

from __future__ import annotations

from coreai._compiler.ir import InsertionPoint, Location, RankedTensorType, Value


def placeholder(type_: RankedTensorType) -> Value:
    """Return a new argument of the current block."""
    return InsertionPoint.current.block.add_argument(type_, Location.unknown())
