"""Graph ops: arguments, states, outputs, and the regions of control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import (
    FunctionType,
    InsertionPoint,
    Location,
    RankedTensorType,
    TypeAttr,
    Value,
)

from .build import Build
from .removable import barrier, made_by
from .shapes import refine


@dataclass(frozen=True)
class Port:
    """The name and type of an input or state of a graph."""

    name: str
    type: RankedTensorType


@dataclass(frozen=True)
class Results:
    """The results of a graph: new values of the states, and the named outputs."""

    states: Sequence[Value]
    outputs: Sequence[tuple[str, Value]]


Body = Callable[[Sequence[Value], Sequence[Value]], Results]


def entrypoint(name: str, states: Sequence[Port], inputs: Sequence[Port], body: Body) -> None:
    """Build a graph that the runtime can call; states come first, in and out.

    A state is a handle that is read once, before all else, and written once, at the end, so
    that every use in between sees the value it should whatever the order of the writes.
    """
    build = Build.current()
    handles = [_coreai.HandleType.get(s.type) for s in states]
    graph = _coreai.GraphOp(
        name,
        [*handles, *(i.type for i in inputs)],
        [],
        [p.name for p in (*states, *inputs)],
        [],
    )
    arguments = list(graph.arguments)
    with build.graph_body(graph.entry_block):
        reads = [_coreai.read_handle(h, _coreai.create_token()) for h in arguments[: len(states)]]
        results = body([r[0] for r in reads], arguments[len(states) :])
        tokens = [
            _coreai.write_handle(handle, _detached(refine(new, port.type)), read[1])
            for handle, port, read, new in zip(
                arguments, states, reads, results.states, strict=False
            )
        ]
        graph.outputs_spec = [
            *((port.name, token) for port, token in zip(states, tokens, strict=True)),
            *results.outputs,
        ]


def _detached(new: Value) -> Value:
    """Return the new value of a state behind a barrier if a graph computed it.

    The compiler would pass the state on into that graph, and fails ("expected type token") when
    several go the same way and one is used elsewhere too.
    """
    return barrier(new) if made_by(new) == "coreai.invoke" else new


def helper(
    name: str,
    inputs: Sequence[Port],
    body: Callable[[Sequence[Value]], Sequence[Value]],
    outputs: Sequence[str],
    *,
    private: bool = True,
    no_inline: bool = False,
    composite_decl: Any = None,
) -> Callable[..., Sequence[Value]]:
    """Build a graph for other graphs; calling the returned function emits the invoke."""
    build = Build.current()
    with InsertionPoint.at_block_begin(build.module.body):
        graph = _coreai.GraphOp(
            build.symbol(name),
            [i.type for i in inputs],
            [],
            [i.name for i in inputs],
            [],
            private=private,
            no_inline=no_inline,
            composite_decl=composite_decl,
        )
    with build.graph_body(graph.entry_block):
        results = body(list(graph.arguments))
        graph.outputs_spec = list(zip(outputs, results, strict=True))
    return lambda *operands: list(graph(*operands))


def branch(
    condition: Value,
    types: Sequence[RankedTensorType],
    then: Callable[[], Sequence[Value]],
    otherwise: Callable[[], Sequence[Value]],
) -> list[Value]:
    """Emit an if: both branches are built, one runs."""
    op = _coreai.IfOp(list(types), condition)
    for region, body in ((op.then_region_builder, then), (op.else_region_builder, otherwise)):
        with region:
            _coreai.yield_([refine(v, t) for v, t in zip(body(), types, strict=True)])
    return list(op.results)


def loop(
    carried: Sequence[Value],
    condition: Callable[[Sequence[Value]], Value],
    body: Callable[[Sequence[Value]], Sequence[Value]],
) -> list[Value]:
    """Emit `while condition(carried): carried = body(carried)`; the types do not change.

    The runtime may write over a carried value before its last use in the body: a counter that
    is added to after a comparison with it was seen there with another value. Copies are safe.

    It also stores temporary values of the condition's region over carried values: the counter k of
    `while (x > 0).any() and k < 50` became 16842752, which are bytes of x > 0 (coreai-core
    1.0.0b3). So the region is empty: a flag is carried, which the body computes for the next step.
    """
    types = [c.type for c in carried]
    first = condition(carried)
    op = _coreai.WhileOp([*types, first.type], [*carried, first])
    with op.before_region_builder as before:
        arguments = list(before.arguments)
        _coreai.condition(arguments[-1], *arguments)
    with op.after_region_builder as after:
        values = body([barrier(a) for a in list(after.arguments)[:-1]])
        updated = [refine(v, t) for v, t in zip(values, types, strict=True)]
        _coreai.yield_([*updated, condition(updated)])
    return list(op.results)[:-1]


def update_signature(graph: Any) -> None:
    """Write the types of the arguments and results to the signature of a graph."""
    block = graph.regions[0].blocks[0]
    results = list(block.operations)[-1].operation.operands
    signature = FunctionType.get([a.type for a in block.arguments], [v.type for v in results])
    graph.attributes["function_type"] = TypeAttr.get(signature)


def placeholder(type_: RankedTensorType) -> Value:
    """Return a new argument of the current block."""
    return InsertionPoint.current.block.add_argument(type_, Location.unknown())
