"""One computation graph for exported programs and Core AI programs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
import torch.fx as fx
from torch.export import ExportedProgram

from ..asset import reading
from ..asset.mlir_module import as_program
from ..asset.reading import Op
from ..asset.summary import ops_of
from ..errors import ArgumentTypeError, UnknownNameError, module_path, source_line, target_name

Key: TypeAlias = "str | int"  # the name of an FX node, or the id of a Core AI operation


@dataclass(frozen=True)
class Operation:
    """A node of a graph: its op, its inputs, and its place in the model."""

    key: Key
    op: str  # an ATen target, or an op of the dialect
    inputs: tuple[Key, ...] = ()
    types: tuple[str, ...] = ()
    attributes: str = ""
    value: str = field(default="", compare=False)  # a hash of a constant's elements
    module: str = ""
    fx_node: str = ""
    source: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant, parameter or buffer."""
        return self.op in ("coreai.constant", "constant")

    @property
    def label(self) -> str:
        """The op with types and attributes, without names and places."""
        return f"{self.op} -> {', '.join(self.types)} {self.attributes}".rstrip()

    def __str__(self) -> str:
        name = f"%{self.key}" if isinstance(self.key, str) else f"#{self.key}"
        places = [
            f"from %{self.fx_node}" if self.fx_node and self.fx_node != self.key else "",
            f"module {self.module!r}" if self.module else "",
            self.source,
        ]
        return ", ".join([f"{name} = {self.op}", *(place for place in places if place)])


@dataclass(frozen=True)
class Graph:
    """Operations in topological order."""

    operations: tuple[Operation, ...]
    outputs: tuple[Key, ...] = ()

    @cached_property
    def by_key(self) -> Mapping[Key, Operation]:
        """The operations by their keys."""
        return {operation.key: operation for operation in self.operations}

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    @cached_property
    def levels(self) -> tuple[tuple[Operation, ...], ...]:
        """The operations grouped by the length of the longest path from an input."""
        depth: dict[Key, int] = {}
        rows: list[list[Operation]] = []
        for operation in self.operations:
            level = max((depth[key] + 1 for key in operation.inputs), default=0)
            depth[operation.key] = level
            rows += [[] for _ in range(level + 1 - len(rows))]
            rows[level].append(operation)
        return tuple(tuple(row) for row in rows)

    def get_nodes(self) -> list[Operation]:
        """Return the operations in topological order."""
        return list(self.operations)

    def get_op_ids(self) -> list[Key]:
        """Return the keys of the operations in topological order."""
        return [operation.key for operation in self.operations]

    def get_node_by_id(self, key: Key) -> Operation | None:
        """Return the operation with this key, or None."""
        return self.by_key.get(key)

    def get_max_depth(self) -> int:
        """Return the largest level."""
        return len(self.levels) - 1

    def get_nodes_at_depth(self, depth: int) -> list[Operation]:
        """Return the operations of one level."""
        return list(self.levels[depth])

    def get_nodes_by_depth(self) -> dict[int, list[Operation]]:
        """Return the operations by level."""
        return {depth: list(row) for depth, row in enumerate(self.levels)}

    def inputs_of(self, key: Key) -> tuple[Key, ...]:
        """Return the keys of the operations whose results this one takes."""
        return self.by_key[key].inputs

    def restricted(self, keys: Collection[Key]) -> Graph:
        """Return the graph of these operations; paths through removed ones become edges."""
        reached: dict[Key, tuple[Key, ...]] = {}
        kept = []
        for operation in self.operations:
            inputs = tuple(dict.fromkeys(k for i in operation.inputs for k in reached[i]))
            if operation.key in keys:
                kept.append(replace(operation, inputs=inputs))
                reached[operation.key] = (operation.key,)
            else:
                reached[operation.key] = inputs
        return Graph(tuple(kept), tuple(k for k in self.outputs if k in keys))


def check_exported(program: object) -> None:
    """Raise unless this is an exported program."""
    if not isinstance(program, ExportedProgram):
        raise ArgumentTypeError(
            f"an ExportedProgram is needed, not a {type(program).__name__}\n"
            "  try   pass torch.export.export(model, args).run_decompositions("
            "coreai_torch.get_decomp_table())"
        )


def graph_of_exported_program(program: ExportedProgram) -> Graph:
    """Return the graph of an exported program; parameters and buffers are constants."""
    check_exported(program)
    inputs = {name for name in program.graph_signature.user_inputs if isinstance(name, str)}
    operations = [
        _of_node(node, is_input=node.name in inputs)
        for node in program.graph.nodes
        if node.op != "output"
    ]
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    return Graph(tuple(operations), tuple(node.name for node in end.all_input_nodes))


def _of_node(node: fx.Node, *, is_input: bool) -> Operation:
    op = target_name(node.target) if node.op == "call_function" else "constant"
    return Operation(
        node.name,
        "input" if is_input else op,
        tuple(n.name for n in node.all_input_nodes),
        tuple(_described(node.meta.get("val"))),
        _arguments(node) if node.op == "call_function" else "",
        module=module_path(node),
        fx_node=node.name,
        source=source_line(node) or "",
    )


def _described(value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        sizes = "x".join(str(size) for size in value.shape)
        yield f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _described(part)


def _arguments(node: fx.Node) -> str:
    """Return the arguments as text, with positions in place of node names."""
    places = {n: place for place, n in enumerate(node.all_input_nodes)}
    shown = fx.node.map_arg((node.args, node.kwargs), lambda n: _Place(places[n]))
    return f"{shown[0]} {shown[1] or ''}".rstrip()


class _Place:
    def __init__(self, index: int) -> None:
        self._index = index

    def __repr__(self) -> str:
        return f"%{self._index}"


def operation_ids(program: reading.Program) -> list[tuple[str, Op, int]]:
    """Return every op with the name of its function and its id.

    The id is the one that the program records. An op without one (as before `optimize()`), or
    with one already used, gets the next number after the highest.
    """
    ops = [(f.name, op) for f in program.functions.values() for op in ops_of(f.body)]
    recorded = [op.place.op_id for _, op in ops]
    fresh = max((i for i in recorded if i is not None), default=-1) + 1
    seen: set[int] = set()
    numbered = []
    for (function, op), given in zip(ops, recorded, strict=True):
        if given is None or given in seen:
            given, fresh = fresh, fresh + 1
        seen.add(given)
        numbered.append((function, op, given))
    return numbered


def graph_of_coreai_program(program: reading.Source, function: str = "main") -> Graph:
    """Return the graph of a function; a call or an op with regions is one operation."""
    return graph_of_function(reading.read(program), function)


def create_graph_from_exported_program(program: ExportedProgram) -> Graph:
    """Return the graph of an exported program, as `graph_of_exported_program`."""
    return graph_of_exported_program(program)


def create_graph_from_coreai_program(module: Any, entry_point: str = "main") -> Graph:
    """Return the graph of a function of a program or of its raw MLIR module."""
    return graph_of_coreai_program(as_program(module), entry_point)


def graph_of_function(program: reading.Program, function: str) -> Graph:
    """Return the graph of a function of a program that was already read."""
    if function not in program.functions:
        raise UnknownNameError(
            f"no function {function!r}; the program has {list(program.functions)}"
        )
    ids = {id(op): number for _, op, number in operation_ids(program)}
    body = program.functions[function].body
    made: dict[int, Key] = {}
    operations = []
    for port, value in zip(program.functions[function].inputs, body.arguments, strict=True):
        made[value] = port.name
        operations.append(Operation(port.name, "input", types=(str(port.type),)))
    for op in body.ops[:-1]:
        operations.append(_of_op(op, ids[id(op)], made))
        made.update((value, ids[id(op)]) for value in op.results)
    return Graph(tuple(operations), tuple(made[value] for value in body.ops[-1].operands))


def _of_op(op: Op, number: int, made: Mapping[int, Key]) -> Operation:
    inner = [value for region in op.regions for o in ops_of(region) for value in o.operands]
    used = (made[value] for value in (*op.operands, *inner) if value in made)
    value = op.attributes.get("value") if op.name == "coreai.constant" else None
    shown = {} if value is not None else {k: v for k, v in op.attributes.items() if k != "callee"}
    place = op.place
    return Operation(
        number,
        op.name,
        tuple(used),
        tuple(str(t) for t in op.types),
        " ".join(f"{k}={v}" for k, v in sorted(shown.items())),
        digest(value) if value is not None else "",
        place.module,
        place.fx_node,
        f'File "{place.file}", line {place.line}' if place.line else "",
    )


def digest(tensor: torch.Tensor) -> str:
    """Return a hash of the tensor's elements."""
    if not tensor.numel():  # torch cannot view a zero-size tensor as bytes
        return ""
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(flat.numpy().tobytes(), digest_size=16).hexdigest()


def named(inputs: Mapping[str, Any] | Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return inputs by name; they may be given by name or in order."""
    if not isinstance(inputs, Mapping | Sequence) or isinstance(inputs, str):
        raise ArgumentTypeError(
            f"inputs is a {type(inputs).__name__}\n"
            f"  try   pass a dictionary, or a list in the order of {list(names)}"
        )
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise ArgumentTypeError(f"the inputs are {list(names)}, but {len(inputs)} were given")
        return dict(zip(names, inputs, strict=True))
    missing = [name for name in names if name not in inputs]
    unknown = [name for name in inputs if name not in names]
    if missing or unknown:
        raise ArgumentTypeError(
            f"the inputs are {list(names)}; missing {missing}, unknown {unknown}"
        )
    return dict(inputs)


def enclosing_modules(module: str) -> list[str]:
    """Return the path of a module and of all modules around it: ``, `a`, `a.b` for `a.b`."""
    parts = module.split(".") if module else []
    return ["", *(".".join(parts[: n + 1]) for n in range(len(parts)))]
