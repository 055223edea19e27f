"""A value from nowhere, for a graph that is built to be looked at and thrown away."""

from __future__ import annotations

from coreai._compiler.ir import InsertionPoint, Location, RankedTensorType, Value


def stand_in(type_: RankedTensorType) -> Value:
    """One more argument of the block that is being filled."""
    return InsertionPoint.current.block.add_argument(type_, Location.unknown())
