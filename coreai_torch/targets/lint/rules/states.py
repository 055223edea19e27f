"""States: how often they are written, and how large they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ....asset.reading import Function, Port
from ..rule import Match, Rule, port_match
from ..view import ProgramView

_LONG = 2048
_EXPECTED = 2
_CACHE_RANK = 4


def _states(function: Function, rank: int = 0) -> list[Port]:
    """Return the states of at least this rank; caches of keys and values have rank 4 or more."""
    states = (port for port in function.inputs if port.type.kind == "handle")
    return [port for port in states if len(port.type.shape) >= rank]


def _written_twice(view: ProgramView) -> Iterator[Match]:
    for function in view.functions:
        if function.function.is_private:
            continue
        numbers = dict(zip(function.function.body.arguments, function.function.inputs, strict=True))
        writes = Counter(op.operands[0] for op in function.where("write_handle"))
        for value, count in writes.items():
            if count > 1 and value in numbers:
                yield port_match(numbers[value], function.function.name)


def _long_states(view: ProgramView) -> Iterator[Match]:
    for function in view.entries:
        for port in _states(function, _CACHE_RANK):
            if max(port.type.shape[1:-1]) >= _LONG:
                yield port_match(port, function.name)


def _unusual_states(view: ProgramView) -> Iterator[Match]:
    for function in view.entries:
        states = _states(function, _CACHE_RANK)
        if len(states) > _EXPECTED:
            yield port_match(states[_EXPECTED], function.name)


def _different_widths(view: ProgramView) -> Iterator[Match]:
    for function in view.entries:
        widths = {port.type.shape[-1]: port for port in _states(function) if port.type.shape}
        if len(widths) > 1:
            yield port_match(list(widths.values())[1], function.name)


RULES = (
    Rule(
        "HAZ25",
        "warning",
        ("gpu", "neural_engine"),
        "a state that is written more than once in a call: devices may keep only one write",
        "write the state once, at the end of forward",
        "coreai-model-zoo, rule SRC-CHAINED-STATE-WRITES",
        _written_twice,
    ),
    Rule(
        "HAZ47",
        "warning",
        ("gpu",),
        f"a cache of {_LONG} positions or more, which gave corrupt text on the GPU of an iPhone",
        f"use fewer than {_LONG} positions",
        "coreai-models issue 124",
        _long_states,
    ),
    Rule(
        "HAZ48",
        "info",
        ("gpu", "neural_engine"),
        "more than two caches: the engines for language models expect two states",
        "stack the caches of all layers in one tensor for keys and one for values",
        "coreai-models documentation",
        _unusual_states,
    ),
    Rule(
        "HAZ49",
        "warning",
        ("neural_engine",),
        "states with different last sizes, which the neural engine does not load",
        "pad them to one size",
        "coreai-model-zoo conversion guide",
        _different_widths,
    ),
)
