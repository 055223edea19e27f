"""Layers of recurrent networks: their weights in the order of the composites, and their steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from .stacked_steps import stacked_steps

# Map the input's part of the gates and the previous states to the next states, output first.
Step: TypeAlias = Callable[[Value, Sequence[Value]], Sequence[Value]]
# Run a step over `[time, batch, gates]`; return `[time, batch, width]` and the last states.
OverTime: TypeAlias = Callable[[Value, Sequence[Value], Step, bool], tuple[Value, Sequence[Value]]]


@dataclass(frozen=True)
class Cell:
    """The weights of one layer in one direction, transposed for `x @ weight`."""

    ih: Value
    hh: Value
    biases: Sequence[Value]  # of the input's part, then of the state's part
    projection: Value | None = None

    @property
    def width(self) -> Dim:
        """The width of the cell state, which a projection maps to that of the hidden state."""
        source = self.hh if self.projection is None else self.projection
        return cai.size(source, 0)

    def of_input(self, x: Value) -> Value:
        """Return the input's part of the gates, for all steps in one product."""
        return cai.add(cai.matmul(x, self.ih), self.biases[0])

    def of_state(self, h: Value) -> Value:
        product = cai.matmul(h, self.hh)
        return cai.add(product, self.biases[1]) if len(self.biases) > 1 else product


@dataclass(frozen=True)
class Kind:
    """A documented composite: its names, the order of its gates and its step."""

    name: str
    initial: tuple[str, ...]
    final: tuple[str, ...]
    gates: Sequence[int]  # the gates of torch in the order of the composite
    resets: bool  # whether a gate multiplies the state's part, whose bias is then apart
    step: Callable[[Cell], Step] = field(repr=False)
    attrs: Mapping[str, Any]

    @property
    def weights(self) -> tuple[str, ...]:
        biases = ("bias_ih", "bias_hh") if self.resets else ("bias",)
        return ("weight_ih", "weight_hh", *biases)


@dataclass(frozen=True)
class Layer:
    """One layer: a cell for each direction, and its weights as the composite takes them."""

    kind: Kind
    cells: Sequence[Sequence[Value]]  # weight_ih, weight_hh, biases, then the projection
    is_projected: bool = False

    @classmethod
    def of(cls, kind: Kind, params: Sequence[Value], directions: int, has_biases: bool) -> Layer:
        """Return the layer that torch's parameters describe."""
        each = len(params) // directions
        cells = [
            _in_order(kind, params[i : i + each], has_biases) for i in range(0, len(params), each)
        ]
        return cls(kind, cells, each > (4 if has_biases else 2))

    @classmethod
    def of_operands(cls, kind: Kind, operands: Sequence[Value]) -> Layer:
        """Return the layer whose `operands()` these are."""
        each = len(kind.weights)
        return cls(kind, [operands[i : i + each] for i in range(0, len(operands), each)])

    def operands(self) -> list[Value]:
        """Return all weights: those of the second direction last."""
        return [weight for cell in self.cells for weight in cell]

    def run(
        self, x: Value, states: Sequence[Value], over_time: OverTime
    ) -> tuple[Value, list[Value]]:
        """Run all directions; the states of two directions are side by side."""
        count = len(self.cells)
        initial = [_divided(h, 1, count) for h in states]
        outputs, finals = [], []
        for direction, weights in enumerate(self.cells):
            cell = _transposed(self.kind, weights)
            given = [h[direction] for h in initial]
            step = self.kind.step(cell)
            output, last = over_time(cell.of_input(x), given, step, direction == 1)
            outputs.append(output)
            finals.append(last)
        together = [cai.concat(1, each) for each in zip(*finals, strict=True)]
        return cai.concat(2, outputs), together


def _in_order(kind: Kind, params: Sequence[Value], has_biases: bool) -> list[Value]:
    """Return the weights of a direction with the gates of the composite; torch's are constants."""
    ih, hh, *rest = params
    biases, projection = (rest[:2], rest[2:]) if has_biases else ([], rest)
    if not biases:
        zero = cai.zeros(ih, [cai.size(ih, 0)])
        biases = [zero, zero] if kind.resets else [zero]
    elif not kind.resets:
        biases = [cai.add(*biases)]
    return [*(_with_gates(w, kind.gates) for w in (ih, hh, *biases)), *projection]


def _with_gates(weight: Value, order: Sequence[int]) -> Value:
    if list(order) == sorted(order):
        return weight
    gates = _divided(weight, 0, len(order))
    return cai.concat(0, [gates[i] for i in order])


def _transposed(kind: Kind, weights: Sequence[Value]) -> Cell:
    count = len(kind.weights)
    ih, hh, *projection = (cai.transpose(w, [1, 0]) for w in (*weights[:2], *weights[count:]))
    return Cell(ih, hh, weights[2:count], *projection)


def _divided(x: Value, axis: int, count: int) -> list[Value]:
    """Split an axis into ranges of equal size."""
    if count == 1:
        return [x]
    extent = cai.size(x, axis)
    if isinstance(extent, int):
        return cai.split(x, axis, [extent // count] * count)
    each = shapes.floordiv(extent, count)
    starts = [shapes.mul(each, i) for i in range(count)]
    return [cai.slice_axis(x, axis, start, shapes.add(start, each)) for start in starts]


def _lstm_step(cell: Cell) -> Step:
    def step(of_input: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        gates, width = cai.add(of_input, cell.of_state(h)), cell.width
        three = shapes.mul(width, 3)
        opened = cai.sigmoid(cai.slice_axis(gates, 1, 0, three))
        new = cai.tanh(cai.slice_axis(gates, 1, three, shapes.mul(width, 4)))
        i, f, o = _divided(opened, 1, 3)
        c = cai.add(cai.mul(f, c), cai.mul(i, new))
        h = cai.mul(o, cai.tanh(c))
        return [h if cell.projection is None else cai.matmul(h, cell.projection), c]

    return step


def _gru_step(cell: Cell) -> Step:
    def step(of_input: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        x_r, x_z, x_n = _divided(of_input, 1, 3)
        h_r, h_z, h_n = _divided(cell.of_state(h), 1, 3)
        reset = cai.sigmoid(cai.add(x_r, h_r))
        update = cai.sigmoid(cai.add(x_z, h_z))
        new = cai.tanh(cai.add(x_n, cai.mul(reset, h_n)))
        return [cai.add(new, cai.mul(update, cai.sub(h, new)))]

    return step


def _rnn_step(activation: Callable[[Value], Value]) -> Callable[[Cell], Step]:
    def of_cell(cell: Cell) -> Step:
        return lambda of_input, states: [activation(cai.add(of_input, cell.of_state(*states)))]

    return of_cell


def _plain_rnn(name: str, activation: Callable[[Value], Value]) -> Kind:
    attrs = {"activation": name}
    return Kind("rnn", ("initial_h",), ("h_n",), (0,), False, _rnn_step(activation), attrs)


_SIGMOID, _TANH = {"recurrent_activation": "sigmoid"}, {"activation": "tanh"}
LSTM = Kind(
    "lstm",
    ("initial_h", "initial_c"),
    ("h_n", "c_n"),
    (0, 1, 3, 2),  # torch has i f g o
    False,
    _lstm_step,
    {**_SIGMOID, "cell_activation": "tanh", **_TANH},
)
GRU = Kind(
    "gru",
    ("initial_h",),
    ("h_n",),
    (0, 1, 2),
    True,
    _gru_step,
    {**_SIGMOID, **_TANH, "reset_after": True},
)
RNN_TANH, RNN_RELU = _plain_rnn("tanh", cai.tanh), _plain_rnn("relu", cai.relu)


def unrolled(
    gates: Value, states: Sequence[Value], step: Step, backwards: bool
) -> tuple[Value, Sequence[Value]]:
    """Run a static number of steps one after the other."""
    length, batch, _ = cai.sizes(gates)
    written, last = written_out(as_rows(gates), int(length), states, step, backwards)
    return cai.reshape(written, [length, batch, cai.size(last[0], 1)]), last


def in_loop(
    gates: Value, states: Sequence[Value], step: Step, backwards: bool
) -> tuple[Value, Sequence[Value]]:
    """Run the steps in a loop."""
    length, batch, width = *cai.sizes(gates)[:2], cai.size(states[0], 1)
    axes = [0] if backwards else []
    gates = cai.reverse(gates, axes)

    def advance(number: Value, before: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        now = cai.slice_axis(gates, 0, number, shapes.add(number, 1))
        after = step(cai.reshape(now, cai.sizes(gates)[1:]), before)
        return list(after), [after[0]]

    last, (written,) = stacked_steps(
        length, states, lambda count: [cai.zeros(gates, [count, batch, width])], advance
    )
    return cai.reverse(written, axes), last


def as_rows(x: Value) -> Value:
    """Reshape `[time, batch, width]` to `[time * batch, width]`: a step needs no reshape then."""
    length, batch, width = cai.sizes(x)
    return cai.reshape(x, [shapes.mul(length, batch), width])


def written_out(
    gates: Value, count: int, states: Sequence[Value], step: Step, backwards: bool = False
) -> tuple[Value, Sequence[Value]]:
    """Run `count` steps over `[count * batch, gates]`; return the outputs in order of time."""
    outputs = []
    of_steps = _divided(gates, 0, count)
    for of_step in reversed(of_steps) if backwards else of_steps:
        states = step(of_step, states)
        outputs.append(states[0])
    return cai.concat(0, outputs[::-1] if backwards else outputs), states


def states_of_layer(states: Value, number: int, directions: int) -> Value:
    """Return the states of a layer, both directions side by side: `(batch, directions * width)`."""
    first = number * directions
    own = cai.slice_axis(states, 0, first, first + directions)
    if directions == 1:
        return cai.shrink_dims(own, [0])
    _, batch, width = cai.sizes(own)
    beside = cai.transpose(own, [1, 0, 2])
    return cai.reshape(beside, [batch, shapes.mul(width, directions)])


def stacked_directions(states: Value, directions: int) -> Value:
    """Return `(batch, directions * width)` as `(directions, batch, width)`."""
    if directions == 1:
        return cai.expand_dims(states, [0])
    batch, width = cai.sizes(states)
    apart = cai.reshape(states, [batch, directions, shapes.floordiv(width, directions)])
    return cai.transpose(apart, [1, 0, 2])
