"""Read and replace ops of a module that a `Build` has open."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from coreai._compiler.ir import (
    Attribute,
    Block,
    DictAttr,
    InsertionPoint,
    RankedTensorType,
    StringAttr,
    Value,
)

from ..asset.reading import read_op
from ..ir.build import Build
from ..ir.graph import update_signature

Operation: TypeAlias = Any  # of MLIR, whose bindings have no types that mypy follows
_PREFIXES = ("coreai.", "decomposable.", "broadcasting_")
# Ops whose result has the elements of their first operand at other places, or as another type.
LAYOUT = ("cast", "reshape", "transpose", "expand_dims", "shrink_dims", "broadcast_to")
_EFFECTS = ("output", "yield", "condition", "write_handle", "read_handle", "create_token", "graph")


def kind(op: Operation) -> str:
    """Return the name of an op without its prefixes: `mul` for both forms of a product."""
    name = str(op.name)
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def graphs(module: Any) -> list[Operation]:
    """Return the graphs of a module."""
    ops = (op.operation for op in module.body.operations)
    return [op for op in ops if op.name == "coreai.graph"]


def ops_of(operation: Operation) -> Iterator[Operation]:
    """Yield all ops inside an op, in order; nested ones before their parent's successors."""
    for region in operation.regions:
        for block in region:
            for op in list(block.operations):
                yield op.operation
                yield from ops_of(op.operation)


def graph_of(op: Operation) -> Operation:
    """Return the graph that an op is part of, however deep."""
    while op.name != "coreai.graph":
        op = op.parent.operation
    return op


def producer(value: Value) -> Operation | None:
    """Return the op that computes a value; None for an argument."""
    owner = value.owner
    return None if isinstance(owner, Block) else owner.operation


def made_by(value: Value, *kinds: str) -> Operation | None:
    """Return the op that computes a value if it is of one of these kinds."""
    op = producer(value)
    return op if op is not None and kind(op) in kinds else None


def source(value: Value, through: Collection[str] = LAYOUT) -> Operation | None:
    """Return the op that computes a value, before ops of the kinds `through`."""
    op = producer(value)
    while op is not None and kind(op) in through:
        op = producer(op.operands[0])
    return op


def is_computed_by(
    op: Operation, test: Callable[[Operation], bool], through: Collection[str], steps: int
) -> bool:
    """Return whether an operand is computed by an op that passes a test.

    Between the two may be up to `steps` ops of the kinds `through`.
    """
    found = [inner for value in op.operands if (inner := producer(value)) is not None]
    return any(
        test(inner)
        or (
            steps > 0 and kind(inner) in through and is_computed_by(inner, test, through, steps - 1)
        )
        for inner in found
    )


def users(value: Value) -> list[Operation]:
    """Return the ops that read a value."""
    return [use.owner.operation for use in value.uses]


def known(value: Value) -> torch.Tensor | None:
    """Return the tensor of a constant; None for other values.

    In a module that is being built, only constants of the build have one.
    """
    op, build = made_by(value, "constant"), Build.current()
    if op is None:
        return None
    return read_op(op).attributes["value"] if build.is_read else build.content(value)


def known_numbers(value: Value) -> list[int] | None:
    """Return the integers of a constant operand, such as axes; None for other values."""
    found = known(value) if value.type.rank <= 1 else None
    return None if found is None else [int(number) for number in found.flatten().tolist()]


def numbers(value: Value) -> list[int]:
    """Return the integers of a constant operand; raise for other values."""
    found = known_numbers(value)
    if found is None:
        raise ValueError(f"{value} is not a constant")
    return found


def rebuilt(
    op: Operation, operands: Sequence[Value], types: Sequence[RankedTensorType] | None = None
) -> list[Value]:
    """Emit a copy of an op with other operands, and other result types if given."""
    copied = op.clone(InsertionPoint.current).operation
    for index, operand in enumerate(operands):
        copied.operands[index] = operand
    for result, type_ in zip(copied.results, types or (), strict=False):
        result.set_type(type_)
    return list(copied.results)


@contextmanager
def at(op: Operation) -> Iterator[None]:
    """Emit new constants before `op`, with its location."""
    with InsertionPoint(op), op.location:
        yield


@contextmanager
def before(op: Operation, graph: Operation) -> Iterator[None]:
    """Emit new ops before `op`, with its location."""
    build = Build.current()
    with build.graph_body(graph.regions[0].blocks[0]), at(op):
        yield


def replace(op: Operation, values: Sequence[Value]) -> None:
    """Use `values` in place of the results of `op`; `erase_unused` erases it."""
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)


def is_unused(op: Operation) -> bool:
    """Return whether an op has no effect and nothing reads its results."""
    return kind(op) not in _EFFECTS and not any(users(result) for result in op.results)


def erase_unused(operation: Operation) -> None:
    """Erase the unused ops inside an op, users before producers.

    Nothing is erased while a pass runs: the bindings do not notice that an op is gone.
    """
    for region in operation.regions:
        for block in region:
            for each in reversed(list(block.operations)):
                op = each.operation
                if is_unused(op):
                    op.erase()
                else:
                    erase_unused(op)


def callee(op: Operation) -> Operation | None:
    """Return the graph that an invoke calls."""
    if kind(op) != "invoke":
        return None
    name = called(op)
    found = (g for g in graphs(Build.current().module) if g.attributes["sym_name"].value == name)
    return next(found, None)


def called(op: Operation) -> str:
    """Return the name of the graph that an invoke calls."""
    text = str(op.attributes["callee"])  # `@name` or `#param.constant<@name> : !param.symbol`
    return text.partition("@")[2].partition(">")[0].strip('"')


def composite(graph: Operation | None) -> str:
    """Return the name of the composite that a graph is; empty for other graphs."""
    if graph is None or "composite_decl" not in graph.attributes:
        return ""
    return str(graph.attributes["composite_decl"]).partition('"')[2].partition('"')[0]


def inlined(op: Operation, graph: Operation, change: Callable[..., Any] | None = None) -> list[Any]:
    """Emit the body of the graph that an invoke calls, and return its results.

    `change(op, operands)` may return the operands of a copied op.
    """
    block = graph.regions[0].blocks[0]
    return copied(block, dict(zip(block.arguments, op.operands, strict=True)), change)


def copied(
    block: Block, values: Mapping[Value, Value], change: Callable[..., Any] | None = None
) -> list[Any]:
    """Emit copies of the ops of a block with other arguments; return what it returned."""
    known_values = dict(values)
    for each in block.operations:
        one = each.operation
        operands = [known_values.get(operand, operand) for operand in one.operands]
        if kind(one) == "output":
            return operands
        if change is not None:
            operands = change(one, operands)
        results = rebuilt(one, operands)
        if one.regions:
            _rename(results[0].owner.operation, known_values)
        known_values.update(zip(one.results, results, strict=True))
    raise ValueError("the block has no output")


def _rename(op: Operation, values: Mapping[Value, Value]) -> None:
    """Let the ops inside a copied op read the copies."""
    for inner in ops_of(op):
        for index, operand in enumerate(inner.operands):
            if operand in values:
                inner.operands[index] = values[operand]


def with_argument(
    graph: Operation, name: str, type_: RankedTensorType, declared: Any
) -> tuple[Operation, Value]:
    """Return a copy of a private graph with one more argument, which nothing reads yet."""
    build = Build.current()
    with InsertionPoint(graph):
        new = graph.clone(InsertionPoint.current).operation
    new.attributes["sym_name"] = StringAttr.get(
        build.symbol(str(graph.attributes["sym_name"].value))
    )
    new.attributes["composite_decl"] = declared
    block = new.regions[0].blocks[0]
    argument = block.add_argument(type_, graph.location)
    attributes = [*new.attributes["arg_attrs"], DictAttr.get({"coreai.name": StringAttr.get(name)})]
    new.opview.arg_attrs = attributes
    update_signature(new)
    return new, argument


def with_input(graph: Operation, name: str) -> Any:
    """Return the declaration of an attention with one more input; None if it is causal."""
    text = str(graph.attributes["composite_decl"])
    found = re.search(r"input_names = \[([^\]]*)\]", text)
    if found is None or re.search(r"is_causal = (true|1)", text):
        return None
    return Attribute.parse(text.replace(found[0], f'input_names = [{found[1]}, "{name}"]'))


def erase_uncalled(build: Build) -> None:
    """Erase the private graphs that nothing calls."""
    names = {
        called(op) for graph in graphs(build.module) for op in ops_of(graph) if kind(op) == "invoke"
    }
    for graph in graphs(build.module):
        if "priv" in graph.attributes and str(graph.attributes["sym_name"].value) not in names:
            graph.erase()


def invoke(graph: Operation, operands: Sequence[Value]) -> list[Value]:
    """Emit a call of a graph."""
    return list(graph.opview(*operands))
