"""Scans and recurrent layers as loops that copy less."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.fx as fx

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Value
from ...lowering import Ctx, lowers, lowers_function
from ...ops._lib import rnn_layers as layers
from ...ops._lib.rnn_layers import GRU, LSTM, RNN_RELU, RNN_TANH, Layer, Step
from ...ops.control_flow import higher_order, over_leading_axis
from ...ops.nn import rnn
from ...torch_compat import aten
from .blocked_steps import BLOCK, in_blocks

_GROUP = 8  # steps of one iteration
_REASON = "10,000 steps take 2.4 s in one loop, which copies all rows in each step, 0.2 in blocks"


@lowers_function(higher_order.scan, target="linux", reason=_REASON)
def scan(
    ctx: Ctx,
    combine_fn: fx.GraphModule,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> list[Value]:
    return over_leading_axis(ctx, combine_fn, init, xs, additional_inputs, in_blocks)


@lowers_function(higher_order.map_impl, target="linux", reason=_REASON)
def map_(
    ctx: Ctx, f: fx.GraphModule, xs: Sequence[Any], pos_args: Sequence[Any] = ()
) -> list[Value]:
    return over_leading_axis(ctx, f, [], xs, pos_args, in_blocks)


def _in_groups(layer: Layer, x: Value, states: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
    return layer.run(x, states, _over_time)


def _over_time(
    gates: Value, states: Sequence[Value], step: Step, backwards: bool
) -> tuple[Value, Sequence[Value]]:
    """Run groups of steps in a loop, and the rest of a static length without one.

    The loop and its copies of carried values take as long as a third of a step.
    """
    length = cai.size(gates, 0)
    axes = [0] if backwards else []
    gates = cai.reverse(gates, axes)
    if not isinstance(length, int):
        output, states = _in_loop(gates, states, step, 1)
        return cai.reverse(output, axes), states
    in_groups = length - length % _GROUP if length > _GROUP else 0
    outputs = []
    if in_groups:
        of_groups = cai.slice_axis(gates, 0, 0, in_groups)
        written, states = _in_loop(of_groups, states, step, _GROUP)
        outputs.append(written)
    if rest := length - in_groups:
        of_rest = layers.as_rows(cai.slice_axis(gates, 0, in_groups, length))
        written, states = layers.written_out(of_rest, rest, states, step)
        outputs.append(cai.reshape(written, [rest, *cai.sizes(states[0])]))
    return cai.reverse(cai.concat(0, outputs), axes), states


def _in_loop(
    gates: Value, states: Sequence[Value], step: Step, group: int
) -> tuple[Value, list[Value]]:
    """Run a loop, with a group of steps in each iteration."""
    length, batch, _ = cai.sizes(gates)
    width = cai.size(states[0], 1)
    rows, of_group = layers.as_rows(gates), shapes.mul(batch, group)

    def advance(number: Value, before: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        start = shapes.mul(number, of_group)
        now = cai.slice_axis(rows, 0, start, shapes.add(start, of_group))
        now = cai.reshape(now, [of_group, cai.size(rows, 1)])
        written, after = layers.written_out(now, group, before, step)
        return list(after), [written]

    last, (written,) = in_blocks(
        shapes.floordiv(length, group),
        states,
        lambda count: [cai.zeros(gates, [count, of_group, width])],
        advance,
        block=BLOCK // group,
    )
    return cai.reshape(written, [length, batch, width]), last


_tuned = partial(lowers, target="linux", reason=_REASON)


_tuned(aten.lstm.input)(rnn.of_kind(LSTM, _in_groups))
_tuned(aten.gru.input)(rnn.of_kind(GRU, _in_groups))
_tuned(aten.rnn_tanh.input)(rnn.of_kind(RNN_TANH, _in_groups))
_tuned(aten.rnn_relu.input)(rnn.of_kind(RNN_RELU, _in_groups))
