"""Lower LSTM, GRU and RNN layers to one loop over time for each layer and direction.

Torch's decomposition unrolls every step, so the graph grows with the length. An iteration of the
loop runs several steps, because the loop and its copies of carried values take as long as a third
of a step (an LSTM of width 64, coreai-core 1.0.0b3). States are float32 for every operand dtype: a
rounding error in one step propagates to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Value
from ...lowering import Ctx, case, lowers
from ...lowering.cases import bf16, f16, f32
from ...torch_compat import aten
from .._lib.stacked_steps import BLOCK, stacked_steps

# Map the input's part of the gates and the previous states to the next states, output first.
Step: TypeAlias = Callable[[Value, Sequence[Value]], list[Value]]

_GROUP = 8  # steps of one iteration
_MOST_WRITTEN_OUT = 8  # steps without a loop: some devices do not support loops


def _wide(x: Value) -> Value:
    return cai.cast(x, torch.float32)


@dataclass(frozen=True)
class _Cell:
    """Weights of one layer in one direction, transposed for `x @ weight` before the loop."""

    w_ih: Value
    w_hh: Value
    input_biases: Sequence[Value]
    state_biases: Sequence[Value]
    w_hr: Value | None  # projects the hidden state of an LSTM

    @classmethod
    def of(cls, params: Sequence[Value], has_biases: bool, resets: bool) -> _Cell:
        """Return a cell; `resets` tells that a gate multiplies the state's part of the gates.

        Otherwise both biases are added to the input's part, which is computed before the loop.
        """
        wide = [_wide(p) for p in params]
        biases = wide[2:4] if has_biases else []
        projection = wide[4 if has_biases else 2 :]
        w_ih, w_hh, *w_hr = (cai.transpose(w, [1, 0]) for w in (*wide[:2], *projection))
        before = 1 if resets else 2
        return cls(w_ih, w_hh, biases[:before], biases[before:], w_hr[0] if w_hr else None)

    def of_input(self, x: Value) -> Value:
        """Return the input's part of the gates, for all steps in one product."""
        return _plus(cai.matmul(x, self.w_ih), self.input_biases)

    def of_state(self, h: Value) -> Value:
        return _plus(cai.matmul(h, self.w_hh), self.state_biases)


def _plus(x: Value, biases: Sequence[Value]) -> Value:
    for bias in biases:
        x = cai.add(x, bias)
    return x


def _parts(gates: Value, count: int) -> list[Value]:
    """Split `[batch, count * width]` into its gates."""
    return _divided(gates, 1, count)


def _divided(x: Value, axis: int, count: int) -> list[Value]:
    """Split an axis into ranges of equal size."""
    extent = cai.size(x, axis)
    if isinstance(extent, int):
        return cai.split(x, axis, [extent // count] * count)
    each = shapes.floordiv(extent, count)
    starts = [shapes.mul(each, i) for i in range(count)]
    return [cai.slice_axis(x, axis, start, shapes.add(start, each)) for start in starts]


def _lstm_step(cell: _Cell) -> Step:
    def step(of_input: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        i, f, g, o = _parts(cai.add(of_input, cell.of_state(h)), 4)
        kept, added = cai.mul(cai.sigmoid(f), c), cai.mul(cai.sigmoid(i), cai.tanh(g))
        c = cai.add(kept, added)
        h = cai.mul(cai.sigmoid(o), cai.tanh(c))
        return [h if cell.w_hr is None else cai.matmul(h, cell.w_hr), c]

    return step


def _gru_step(cell: _Cell) -> Step:
    def step(of_input: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        x_r, x_z, x_n = _parts(of_input, 3)
        h_r, h_z, h_n = _parts(cell.of_state(h), 3)
        reset = cai.sigmoid(cai.add(x_r, h_r))
        update = cai.sigmoid(cai.add(x_z, h_z))
        new = cai.tanh(cai.add(x_n, cai.mul(reset, h_n)))
        return [cai.add(new, cai.mul(update, cai.sub(h, new)))]

    return step


def _plain_step(activation: Callable[[Value], Value]) -> Callable[[_Cell], Step]:
    def of_cell(cell: _Cell) -> Step:
        return lambda of_input, states: [activation(cai.add(of_input, cell.of_state(*states)))]

    return of_cell


def _over_time(gates: Value, states: Sequence[Value], step: Step) -> tuple[Value, list[Value]]:
    """Return all outputs `[time, batch, width]` and the last states."""
    length = cai.size(gates, 0)
    if not isinstance(length, int):
        return _in_loop(gates, states, step, 1)
    in_groups = length - length % _GROUP if length > _MOST_WRITTEN_OUT else 0
    outputs = []
    if in_groups:
        of_groups = cai.slice_axis(gates, 0, 0, in_groups)
        written, states = _in_loop(of_groups, states, step, _GROUP)
        outputs.append(written)
    if rest := length - in_groups:
        of_rest = _as_rows(cai.slice_axis(gates, 0, in_groups, length))
        written, states = _written_out(of_rest, rest, states, step)
        outputs.append(cai.reshape(written, [rest, *cai.sizes(states[0])]))
    return cai.concat(0, outputs), list(states)


def _in_loop(
    gates: Value, states: Sequence[Value], step: Step, group: int
) -> tuple[Value, list[Value]]:
    """Run a loop, with a group of steps in each iteration."""
    length, batch, _ = cai.sizes(gates)
    width = cai.size(states[0], 1)
    rows, of_group = _as_rows(gates), shapes.mul(batch, group)

    def advance(number: Value, before: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        start = shapes.mul(number, of_group)
        now = cai.slice_axis(rows, 0, start, shapes.add(start, of_group))
        now = cai.reshape(now, [of_group, cai.size(rows, 1)])
        written, after = _written_out(now, group, before, step)
        return list(after), [written]

    last, (written,) = stacked_steps(
        shapes.floordiv(length, group),
        states,
        lambda count: [cai.zeros(gates, [count, of_group, width])],
        advance,
        block=BLOCK // group,
    )
    return cai.reshape(written, [length, batch, width]), last


def _as_rows(x: Value) -> Value:
    """Reshape `[time, batch, width]` to `[time * batch, width]`: a slice of it has two axes."""
    length, batch, width = cai.sizes(x)
    return cai.reshape(x, [shapes.mul(length, batch), width])


def _written_out(
    gates: Value, count: int, states: Sequence[Value], step: Step
) -> tuple[Value, Sequence[Value]]:
    """Run `count` steps without a loop; return the outputs `[count * batch, width]`."""
    outputs = []
    for of_step in _divided(gates, 0, count):
        states = step(of_step, states)
        outputs.append(states[0])
    return cai.concat(0, outputs), states


def _state_of(states: Value, place: int) -> Value:
    """Return the initial state of a layer, without a slice if there is one: it may be constant."""
    is_only = cai.size(states, 0) == 1
    return cai.shrink_dims(states if is_only else cai.slice_axis(states, 0, place, place + 1), [0])


def _layers(
    x: Value,
    hx: Sequence[Value],
    cells: Sequence[_Cell],
    step_of: Callable[[_Cell], Step],
    directions: int,
) -> tuple[Value, list[Value]]:
    """Run all layers over `[time, batch, width]`; stack the last states of all layers."""
    finals: list[list[Value]] = []
    for first in range(0, len(cells), directions):
        outputs = []
        for place in range(first, first + directions):
            backwards = [0] if place > first else []
            gates = cai.reverse(cells[place].of_input(x), backwards)
            states = [_state_of(h, place) for h in hx]
            written, last = _over_time(gates, states, step_of(cells[place]))
            outputs.append(cai.reverse(written, backwards))
            finals.append(last)
        x = cai.concat(2, outputs)
    stacked = [
        cai.concat(0, [cai.expand_dims(state, [0]) for state in each])
        for each in zip(*finals, strict=True)
    ]
    return x, stacked


@dataclass(frozen=True)
class _Options:
    """Arguments that the four ops have in common."""

    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def _run(
    ctx: Ctx,
    x: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    step_of: Callable[[_Cell], Step],
    options: _Options,
    resets: bool = False,
) -> list[Value]:
    """Return output and last states of all layers, in the dtype and layout of the operands."""
    if options.dropout and options.train and options.layers > 1:
        ctx.refuse(
            "dropout between layers in training mode is not supported",
            "call model.eval() before exporting",
        )
    directions = 2 if options.bidirectional else 1
    each = len(params) // (options.layers * directions)
    cells = [
        _Cell.of(params[i : i + each], options.has_biases, resets)
        for i in range(0, len(params), each)
    ]
    turned = [1, 0, 2] if options.batch_first else [0, 1, 2]
    wide = cai.transpose(_wide(x), turned)
    output, finals = _layers(wide, [_wide(h) for h in hx], cells, step_of, directions)
    return [cai.cast(r, cai.dtype(x)) for r in (cai.transpose(output, turned), *finals)]


def _params(
    gates: int,
    *,
    layers: int = 1,
    ways: int = 1,
    bias: bool = True,
    out: int = 0,
    of: Callable[..., Any] = f32,
) -> list[Any]:
    """Return parameters for inputs of width 3 and states of width 4, projected to `out` if set."""
    made: list[tuple[int, ...]] = []
    for layer in range(layers):
        state = out or 4
        fed = ways * state if layer else 3
        of_one: list[tuple[int, ...]] = [(gates * 4, fed), (gates * 4, state)]
        of_one += [(gates * 4,)] * 2 if bias else []
        of_one += [(out, 4)] if out else []
        made += of_one * ways
    return [of(*shape, low=-0.6, high=0.6, constant=True) for shape in made]


def _lstm_cases() -> list[Any]:
    return [
        case(f32(5, 2, 3), [f32(1, 2, 4)] * 2, _params(4), True, 1, 0.0, False, False, False),
        case(
            f32(2, 5, 3),
            [f32(4, 2, 4)] * 2,
            _params(4, layers=2, ways=2),
            *(True, 2, 0.5, False, True, True),
        ),
        case(
            f32(5, 2, 3),
            [f32(4, 2, 2), f32(4, 2, 4)],
            _params(4, layers=2, ways=2, bias=False, out=2),
            *(False, 2, 0.0, True, True, False),
        ),
        case(
            f32(1, 2, 3),
            [f32(1, 2, 2), f32(1, 2, 4)],
            _params(4, out=2),
            *(True, 1, 0.5, True, False, False),
        ),
        case(
            f16(5, 2, 3),
            [f16(1, 2, 4)] * 2,
            _params(4, of=f16),
            *(True, 1, 0.0, False, False, False),
        ),
        case(
            bf16(5, 2, 3),
            [bf16(1, 2, 4)] * 2,
            _params(4, of=bf16),
            *(True, 1, 0.0, False, False, False),
        ),
    ]


def _cases(gates: int) -> list[Any]:
    """Return the cases of a layer with one state."""
    return [
        case(f32(5, 2, 3), f32(1, 2, 4), _params(gates), True, 1, 0.0, False, False, False),
        case(
            f32(2, 5, 3),
            f32(4, 2, 4),
            _params(gates, layers=2, ways=2),
            *(True, 2, 0.5, False, True, True),
        ),
        case(
            f32(5, 2, 3),
            f32(3, 2, 4),
            _params(gates, layers=3, bias=False),
            *(False, 3, 0.0, True, False, False),
        ),
        case(
            f16(5, 2, 3),
            f16(1, 2, 4),
            _params(gates, of=f16),
            *(True, 1, 0.0, False, False, False),
        ),
    ]


@lowers(aten.lstm.input, cases=_lstm_cases())
def lstm(
    ctx: Ctx,
    x: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value]:
    options = _Options(has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _run(ctx, x, hx, params, _lstm_step, options)


def _with_one_state(target: Any, gates: int, step_of: Callable[[_Cell], Step]) -> None:
    @lowers(target, cases=_cases(gates))
    def lower(
        ctx: Ctx,
        x: Value,
        hx: Value,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Value]:
        options = _Options(has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return _run(ctx, x, [hx], params, step_of, options, resets=step_of is _gru_step)


_with_one_state(aten.gru.input, 3, _gru_step)
_with_one_state(aten.rnn_tanh.input, 1, _plain_step(cai.tanh))
_with_one_state(aten.rnn_relu.input, 1, _plain_step(cai.relu))
