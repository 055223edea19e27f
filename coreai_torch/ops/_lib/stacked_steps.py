"""Run a loop that stacks one row per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Dim, Value

Step: TypeAlias = Callable[[Value, Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]
Empty: TypeAlias = Callable[[Dim], Sequence[Value]]
Stacking: TypeAlias = Callable[[Dim, Sequence[Value], Empty, Step], tuple[list[Value], list[Value]]]


def stacked_steps(
    length: Dim, carried: Sequence[Value], empty: Empty, step: Step
) -> tuple[list[Value], list[Value]]:
    """Run `carried, rows = step(index, carried)` and return the last values and the stacks.

    `empty(count)` returns a stack of `count` rows for each row that a step returns.
    """
    return one_loop(cai.i32(0), as_index(length), carried, empty(length), step)


def as_index(size: Dim) -> Value:
    """Return a size as a value."""
    return cai.i32(size) if isinstance(size, int) else size


def one_loop(
    start: Value, steps: Value, carried: Sequence[Value], stacks: Sequence[Value], step: Step
) -> tuple[list[Value], list[Value]]:
    """Run `steps` steps; the first has the index `start`."""
    count = len(carried)

    def going_on(state: Sequence[Value]) -> Value:
        return cai.less(state[0], steps)

    def body(state: Sequence[Value]) -> list[Value]:
        number, values, stacks = state[0], state[1 : 1 + count], state[1 + count :]
        updated, rows = step(cai.add(start, number), values)
        following = cai.add(number, cai.i32(1))
        written = [
            written_rows(s, cai.reshape(r, [1, *cai.sizes(s)[1:]]), number, following)
            for s, r in zip(stacks, rows, strict=True)
        ]
        return [following, *updated, *written]

    state = graph.loop([cai.i32(0), *carried, *stacks], going_on, body)
    return state[1 : 1 + count], state[1 + count :]


def written_rows(stack: Value, rows: Value, start: Value, end: Value) -> Value:
    """Write rows into a stack."""
    rest = cai.sizes(stack)[1:]
    starts: list[Dim] = [start, *[0] * len(rest)]
    ends: list[Dim] = [end, *rest]
    return cai.slice_update(stack, rows, starts, ends, [1] * len(starts))
