"""Lower LSTM, GRU and RNN layers to one composite for each layer, both directions in one.

The body of a composite runs up to `MOST_UNROLLED` steps one after the other, and more of them in a
loop. A layer over a dynamic number of steps, and one that projects its hidden state, are loops or
steps without a composite, because the documented composites have a static length and no projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...ir import dialect as cai
from ...ir.composite import Composite
from ...ir.dialect import Value
from ...lowering import Ctx, case, lowers
from ...lowering.cases import bf16, f16, f32
from ...torch_compat import aten
from .._lib import rnn_layers as layers
from .._lib.rnn_layers import GRU, LSTM, RNN_RELU, RNN_TANH, Kind, Layer

MOST_UNROLLED = 128  # steps; the graph of a composite has 14 ops for each step of an LSTM

Emit: TypeAlias = Callable[[Layer, Value, Sequence[Value]], tuple[Value, Sequence[Value]]]


@dataclass(frozen=True)
class Options:
    """Arguments that the four ops have in common."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def run(
    ctx: Ctx,
    kind: Kind,
    emit: Emit,
    x: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    options: Options,
) -> list[Value]:
    """Return the output and the last states of all layers; `emit` emits one layer."""
    if options.dropout and options.train and options.num_layers > 1:
        ctx.refuse(
            "dropout between layers in training mode is not supported",
            "call model.eval() before exporting",
        )
    directions = 2 if options.bidirectional else 1
    each = len(params) // options.num_layers
    time_major = [1, 0, 2] if options.batch_first else [0, 1, 2]
    x, finals = cai.transpose(x, time_major), []
    for number in range(options.num_layers):
        own = params[number * each : (number + 1) * each]
        layer = Layer.of(kind, own, directions, options.has_biases)
        states = [layers.states_of_layer(h, number, directions) for h in hx]
        x, last = emit(layer, x, states)
        finals.append([layers.stacked_directions(h, directions) for h in last])
    stacked = [cai.concat(0, each) for each in zip(*finals, strict=True)]
    return [cai.transpose(x, time_major), *stacked]


def _in_composite(layer: Layer, x: Value, states: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
    length = cai.size(x, 0)
    over_time = layers.in_loop
    if isinstance(length, int) and length <= MOST_UNROLLED:
        over_time = layers.unrolled
    if layer.is_projected or not isinstance(length, int):
        return layer.run(x, states, over_time)
    declared, kind = _declaration(layer), layer.kind

    def body(x: Value, *operands: Value) -> list[Value]:
        count = len(states)
        inner = Layer.of_operands(kind, operands[count:])
        output, last = inner.run(x, operands[:count], over_time)
        return [output, *last]

    output, *last = declared.emit(body, x, *states, *layer.operands())
    return output, last


def _declaration(layer: Layer) -> Composite:
    kind, ways = layer.kind, ("", "_back")[: len(layer.cells)]
    return Composite(
        kind.name,
        ("x", *kind.initial, *(f"{name}{way}" for way in ways for name in kind.weights)),
        {
            "direction": "bidirectional" if len(ways) == 2 else "forward",
            "output_sequence": True,
            **kind.attrs,
        },
        ("output", *kind.final),
    )


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
            tolerance=(2e-3, 2e-3),
            because="each step rounds its gates to float16, and the next step reads the error",
        ),
    ]


def of_kind(kind: Kind, emit: Emit = _in_composite) -> Callable[..., list[Value]]:
    """Return the lowering of a layer with one or several states."""

    def with_states(
        ctx: Ctx, x: Value, hx: Sequence[Value], params: Sequence[Value], **options: bool
    ) -> list[Value]:
        return run(ctx, kind, emit, x, hx, params, Options(**options))

    def with_state(
        ctx: Ctx, x: Value, hx: Value, params: Sequence[Value], **options: bool
    ) -> list[Value]:
        return run(ctx, kind, emit, x, [hx], params, Options(**options))

    return with_state if len(kind.initial) == 1 else with_states


lowers(aten.lstm.input, cases=_lstm_cases())(of_kind(LSTM))
lowers(aten.gru.input, cases=_cases(3))(of_kind(GRU))
lowers(aten.rnn_tanh.input, cases=_cases(1))(of_kind(RNN_TANH))
lowers(aten.rnn_relu.input, cases=_cases(1))(of_kind(RNN_RELU))
