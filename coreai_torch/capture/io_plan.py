"""Plan the inputs, outputs and states of a program, with their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from torch.export.graph_signature import InputKind, InputSpec, OutputKind

from ..errors import ConversionError, NamingError, describe, wrong_count
from ..torch_compat import BUFFER_WRITES, child_specs, pytree
from .random_draws.draw import draw_of
from .torch_faults import same_sizes


@dataclass(frozen=True)
class Input:
    """An argument that the caller of the converted program passes."""

    name: str
    node: fx.Node


@dataclass(frozen=True)
class State:
    """A value that persists between calls: the node that reads it and the one written back."""

    name: str
    node: fx.Node
    written: fx.Node
    buffer: str | None  # the buffer's path in the model; None for a mutated argument


@dataclass(frozen=True)
class Output:
    """A value that the program returns; `value` is a node or a Python number."""

    name: str
    value: Any


@dataclass(frozen=True)
class IOPlan:
    """Inputs, states and outputs of a program in order, and the values of other placeholders."""

    inputs: tuple[Input, ...]
    states: tuple[State, ...]
    outputs: tuple[Output, ...]
    constants: dict[fx.Node, tuple[str, torch.Tensor]] = field(repr=False)
    folded: dict[fx.Node, Any] = field(repr=False)  # arguments that are not tensors


@dataclass(frozen=True)
class Names:
    """Names given by the caller; None means default names, as empty inputs and outputs do."""

    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    states: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Store None for empty lists."""
        for kind in ("inputs", "outputs"):
            if getattr(self, kind) in ([], ()):
                object.__setattr__(self, kind, None)


def plan(program: torch.export.ExportedProgram, names: Names) -> IOPlan:
    """Read inputs, outputs and states from the graph signature and name them."""
    signature = program.graph_signature
    nodes = {n.name: n for n in program.graph.nodes}
    specs = {s.arg.name: s for s in signature.input_specs if hasattr(s.arg, "name")}
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    written = _written(program, nodes)
    constants: dict[fx.Node, tuple[str, torch.Tensor]] = {}
    folded: dict[fx.Node, Any] = {}
    state_nodes: list[fx.Node] = []
    input_nodes: list[fx.Node] = []
    for node in placeholders:
        spec = specs[node.name]
        if node in written:
            state_nodes.append(node)
        elif spec.kind is InputKind.USER_INPUT:
            if isinstance(node.meta.get("val"), torch.Tensor | torch.SymInt | torch.SymFloat):
                input_nodes.append(node)
            else:
                folded[node] = _constant_argument(spec)
        else:
            constants[node] = _constant(program, spec, node)
    # The signature lists buffers before arguments, each in registration order.
    states = _named_states(state_nodes, written, specs, names.states)
    for state in states:
        _check_size(state)
    outputs = _named_outputs(program, nodes, names.outputs, [s.name for s in states])
    inputs = _named_inputs(input_nodes, names.inputs)
    plan_ = IOPlan(
        tuple(Input(name, node) for name, node in zip(inputs, input_nodes, strict=True)),
        states,
        outputs,
        constants,
        folded,
    )
    state_names = [s.name for s in plan_.states]
    _check_unique("inputs and states", [*state_names, *(i.name for i in plan_.inputs)])
    _check_unique("outputs and states", [*state_names, *(o.name for o in plan_.outputs)])
    return plan_


def _written(
    program: torch.export.ExportedProgram, nodes: dict[str, fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Map the placeholder of each mutated buffer or argument to the node written back."""
    signature = program.graph_signature
    placeholder_of = {s.target: s.arg.name for s in signature.input_specs if s.target is not None}
    pairs = {}
    for spec in signature.output_specs:
        if spec.kind in BUFFER_WRITES:
            pairs[nodes[placeholder_of[spec.target]]] = nodes[spec.arg.name]
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            pairs[nodes[spec.target]] = nodes[spec.arg.name]
    return pairs


def _check_size(state: State) -> None:
    """Raise if an input or buffer has another size after the call: `torch.sum(x, 0, out=x)`."""
    before, after = (list(node.meta["val"].shape) for node in (state.node, state.written))
    if same_sizes(before, after):
        return
    kind = "input" if state.buffer is None else "buffer"
    raise ConversionError(
        describe(
            state.written,
            f"the model changes the shape of the {kind} {(state.buffer or state.node.name)!r} from "
            f"{before} to {after}, but a state keeps its shape",
            "write to a tensor of the result's shape, or assign the result to a new variable "
            "instead of passing out=",
        )
    )


def _constant(
    program: torch.export.ExportedProgram, spec: InputSpec, node: fx.Node
) -> tuple[str, torch.Tensor]:
    path = str(spec.target)
    for values in (program.state_dict, program.constants):
        if path in values and isinstance(values[path], torch.Tensor):
            return path, values[path]
    raise ConversionError(
        f"placeholder %{node.name} is the {spec.kind.name.lower()} {path!r}, which is not a "
        "tensor\n  try   change the model so that its forward uses tensors and numbers only"
    )


def _constant_argument(spec: InputSpec) -> Any:
    return getattr(spec.arg, "value", None)


def _named(what: str, default: Sequence[str], given: Sequence[str] | None) -> list[str]:
    if given is None:
        return list(default)
    # The order of the keys of a dictionary or a set may not be the intended one.
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if not listed or not all(isinstance(name, str) and name for name in given):
        raise NamingError(
            f"{what} is {given!r}\n  try   pass a list of names, one for each of {list(default)}"
        )
    if len(given) != len(default):
        raise wrong_count(what, given, default)
    return list(given)


def _named_inputs(nodes: Sequence[fx.Node], given: Sequence[str] | None) -> list[str]:
    """Name the inputs; those of random numbers, which are last, need no given name."""
    default = [node.name for node in nodes]
    drawn = [node.name for node in nodes if draw_of(node) is not None]
    if drawn and given is not None and len(given) == len(default) - len(drawn):
        given = [*given, *drawn]
    return _named("input_names", default, given)


def _named_states(
    nodes: Sequence[fx.Node],
    written: dict[fx.Node, fx.Node],
    specs: dict[str, InputSpec],
    given: Sequence[str] | None,
) -> tuple[State, ...]:
    names = _named("state_names", [n.name for n in nodes], given)
    return tuple(
        State(name, node, written[node], specs[node.name].target)
        for name, node in zip(names, nodes, strict=True)
    )


def _named_outputs(
    program: torch.export.ExportedProgram,
    nodes: dict[str, fx.Node],
    given: Sequence[str] | None,
    states: Sequence[str],
) -> tuple[Output, ...]:
    values: list[Any] = []
    default: list[str] = []
    user = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    for spec, of_structure in zip(user, from_structure(program), strict=True):
        name = getattr(spec.arg, "name", None)
        if name in nodes:
            values.append(nodes[name])
            default.append(of_structure or name)
        elif isinstance(value := getattr(spec.arg, "value", None), bool | int | float):
            values.append(value)
            default.append(of_structure or f"output_{len(default)}")
        # A program cannot return None or a string; torch adds them from the output structure.
    names = _unique(default, states) if given is None else _named("output_names", default, given)
    return tuple(Output(n, v) for n, v in zip(names, values, strict=True))


def _unique(names: Sequence[str], states: Iterable[str]) -> list[str]:
    """Number repeated names (`add`, `add_1`): a tensor returned twice, a state's old value."""
    given, unique = set(names), []
    used = set(states)
    for name in names:
        candidate, count = name, 0
        while candidate in used or (candidate != name and candidate in given):
            count += 1
            candidate = f"{name}_{count}"
        used.add(candidate)
        unique.append(candidate)
    return unique


def _check_unique(what: str, names: Sequence[str]) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise NamingError(
            f"{what} must have different names; {', '.join(map(repr, twice))} occurs more than "
            f"once in {list(names)}\n  try   pass a different name for each: the runtime "
            "identifies them by name only"
        )


def from_structure(program: torch.export.ExportedProgram) -> list[str | None]:
    """Return a name for each returned value: its path from the first key on.

    The name is None for a value outside of mappings, dataclasses and named tuples.
    """
    user = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    structure = program.call_spec.out_spec
    if structure is None or structure.num_leaves != len(user) or not _has_paths(structure):
        return [None] * len(user)
    # Unflattening constructs the classes again, with the values they had during tracing.
    nodes = {n.name: n.meta.get("val") for n in program.graph.nodes}
    leaves = [nodes.get(s.arg.name, getattr(s.arg, "value", None)) for s in user]
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, structure))
    return [_name(path) for path, _ in paths] if len(paths) == len(user) else [None] * len(user)


def _has_paths(structure: pytree.TreeSpec) -> bool:
    if structure.is_leaf():
        return True
    known = pytree.SUPPORTED_NODES.get(structure.type)
    keyed = known is not None and known.flatten_with_keys_fn is not None
    return keyed and all(_has_paths(child) for child in child_specs(structure))


def _name(path: Sequence[Any]) -> str | None:
    parts = [_part(key) for key in path]
    keys = [i for i, key in enumerate(path) if not isinstance(key, pytree.SequenceKey)]
    if not keys:
        return None
    return re.sub(r"\W", "_", "_".join(parts[keys[0] :]))


def _part(key: Any) -> str:
    if isinstance(key, pytree.SequenceKey):
        return str(key.idx)
    return str(key.key if isinstance(key, pytree.MappingKey) else key.name)
