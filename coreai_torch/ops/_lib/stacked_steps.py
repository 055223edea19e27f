"""Run a loop that stacks one row per step, in time linear in the number of steps.

A loop copies its carried values in every step (coreai-core 1.0.0b3). If it carries a stack of all
rows, n steps copy n² rows: 10,000 steps of an LSTM of width 64 took 2.4 s. Therefore many steps run
in blocks: an inner loop carries the rows of its block, and an outer loop the stack of all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Dim, Value

_BLOCK = 128

Step = Callable[[Value, Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]
Empty = Callable[[Dim], Sequence[Value]]


def stacked_steps(
    length: Dim, carried: Sequence[Value], empty: Empty, step: Step
) -> tuple[list[Value], list[Value]]:
    """Run `carried, rows = step(index, carried)` and return the last values and the stacks.

    `empty(count)` returns a stack of `count` rows for each row that a step returns. A dynamic
    length runs in one loop.
    """
    if not isinstance(length, int) or length <= 2 * _BLOCK:
        stop = cai.i32(length) if isinstance(length, int) else length
        return _one_loop(cai.i32(0), stop, carried, empty(length), step)
    blocks = -(-length // _BLOCK)
    count = len(carried)

    def going_on(state: Sequence[Value]) -> Value:
        return cai.less(state[0], cai.i32(blocks))

    def body(state: Sequence[Value]) -> list[Value]:
        block, values, stacks = state[0], state[1 : 1 + count], state[1 + count :]
        start = cai.mul(block, cai.i32(_BLOCK))
        steps = cai.minimum(cai.i32(_BLOCK), cai.sub(cai.i32(length), start))
        updated, rows = _one_loop(start, steps, values, empty(_BLOCK), step)
        end = cai.add(start, cai.i32(_BLOCK))
        written = [_written(s, r, start, end) for s, r in zip(stacks, rows, strict=True)]
        return [cai.add(block, cai.i32(1)), *updated, *written]

    state = graph.loop([cai.i32(0), *carried, *empty(blocks * _BLOCK)], going_on, body)
    stacks = state[1 + count :]
    if blocks * _BLOCK > length:
        stacks = [cai.slice_axis(s, 0, 0, length) for s in stacks]
    return state[1 : 1 + count], stacks


def _one_loop(
    start: Value, steps: Value, carried: Sequence[Value], stacks: Sequence[Value], step: Step
) -> tuple[list[Value], list[Value]]:
    count = len(carried)

    def going_on(state: Sequence[Value]) -> Value:
        return cai.less(state[0], steps)

    def body(state: Sequence[Value]) -> list[Value]:
        number, values, stacks = state[0], state[1 : 1 + count], state[1 + count :]
        updated, rows = step(cai.add(start, number), values)
        following = cai.add(number, cai.i32(1))
        written = [
            _written(s, cai.reshape(r, [1, *cai.sizes(s)[1:]]), number, following)
            for s, r in zip(stacks, rows, strict=True)
        ]
        return [following, *updated, *written]

    state = graph.loop([cai.i32(0), *carried, *stacks], going_on, body)
    return state[1 : 1 + count], state[1 + count :]


def _written(stack: Value, rows: Value, start: Value, end: Value) -> Value:
    rest = cai.sizes(stack)[1:]
    starts: list[Dim] = [start, *[0] * len(rest)]
    ends: list[Dim] = [end, *rest]
    return cai.slice_update(stack, rows, starts, ends, [1] * len(starts))
