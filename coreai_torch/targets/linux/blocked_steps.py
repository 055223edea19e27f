"""Run a loop that stacks one row per step, in time linear in the number of steps.

A loop copies its carried values in every step (coreai-core 1.0.0b3). If it carries a stack of all
rows, n steps copy n² rows: 10,000 steps of an LSTM of width 64 take 2.4 s. Therefore many steps run
in blocks: an inner loop carries the rows of its block, and an outer loop the stack of all blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dialect as cai
from ...ir import graph, shapes
from ...ir.dialect import Dim, Value
from ...ops._lib.stacked_steps import Empty, Step, as_index, one_loop, written_rows

BLOCK = 128


def in_blocks(
    length: Dim, carried: Sequence[Value], empty: Empty, step: Step, block: Dim = BLOCK
) -> tuple[list[Value], list[Value]]:
    """Run `carried, rows = step(index, carried)` and return the last values and the stacks.

    `empty(count)` returns a stack of `count` rows for each row that a step returns. `block` is the
    greatest number of steps in a block.
    """
    if isinstance(length, int) and isinstance(block, int) and length <= 2 * block:
        return one_loop(cai.i32(0), cai.i32(length), carried, empty(length), step)
    block = _block_size(length, block)
    blocks = shapes.floordiv(shapes.add(length, shapes.sub(block, 1)), block)
    padded = shapes.mul(blocks, block)
    count = len(carried)

    def going_on(state: Sequence[Value]) -> Value:
        return cai.less(state[0], as_index(blocks))

    def body(state: Sequence[Value]) -> list[Value]:
        number, values, stacks = state[0], state[1 : 1 + count], state[1 + count :]
        start = cai.mul(number, as_index(block))
        steps = cai.minimum(as_index(block), cai.sub(as_index(length), start))
        updated, rows = one_loop(start, steps, values, empty(block), step)
        end = cai.add(start, as_index(block))
        written = [written_rows(s, r, start, end) for s, r in zip(stacks, rows, strict=True)]
        return [cai.add(number, cai.i32(1)), *updated, *written]

    state = graph.loop([cai.i32(0), *carried, *empty(padded)], going_on, body)
    stacks = state[1 + count :]
    if padded != length:
        stacks = [cai.slice_axis(s, 0, 0, length) for s in stacks]
    return state[1 : 1 + count], stacks


def _block_size(length: Dim, most: Dim) -> Dim:
    """Return `most`, or a dynamic length below: 128 rows of 4 MB for three steps are 512 MB."""
    if isinstance(length, int):
        return most
    return shapes.minimum(shapes.maximum(length, 1), most)
