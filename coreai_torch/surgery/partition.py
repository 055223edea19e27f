"""Build the program of each part of a captured program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec

from ..capture.io_plan import IOPlan, Names, State
from ..errors import ConversionError
from ..fx.programs import Signature, argument, flat_inputs, name_of, named_outputs, with_graph
from ..passes.externalize.cut import is_number
from ..torch_compat import BUFFER_WRITES, aten
from .cut_points import Steps


@dataclass(frozen=True)
class Part:
    """One program of the chain, with the names of its ports in the chain."""

    program: torch.export.ExportedProgram
    names: Names
    weight_bytes: int
    first: fx.Node


@dataclass
class _Draft:
    """The values that a part computes, takes and returns; nodes are those of the whole program."""

    calls: list[fx.Node]
    inputs: dict[fx.Node, None] = field(default_factory=dict)
    stored: dict[fx.Node, None] = field(default_factory=dict)  # weights, states and branches
    sizes: dict[fx.Node, tuple[fx.Node, int]] = field(default_factory=dict)
    numbers: dict[fx.Node, None] = field(default_factory=dict)
    outputs: list[tuple[str, fx.Node]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)


class Partition:
    """Divides a program at the given cuts."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        plan: IOPlan,
        steps: Steps,
        cuts: Sequence[int],
    ) -> None:
        self._program, self._plan, self._steps = program, plan, steps
        bounds = [0, *cuts, len(steps.nodes)]
        self._part_of = {
            node: part
            for part in range(len(bounds) - 1)
            for node in steps.nodes[bounds[part] : bounds[part + 1]]
        }
        self._drafts = [_Draft(list(steps.nodes[a:b])) for a, b in pairwise(bounds)]
        self._specs = {name_of(spec): spec for spec in program.graph_signature.input_specs}
        self._names: dict[fx.Node, str] = {port.node: port.name for port in plan.inputs}
        self._assign()

    @property
    def crossing(self) -> list[fx.Node]:
        """The values that parts return for others, and the inputs of the program."""
        return list(self._names)

    def _assign(self) -> None:
        """Give each output and state to a part, then find what crosses the cuts."""
        homes: dict[fx.Node, int] = {}
        for state in self._plan.states:
            found = [self._part_of[self._steps.nodes[i]] for i in self._steps.uses(state.node)]
            homes[state.node] = self._part_of.get(state.written, found[0] if found else -1)
            self._drafts[homes[state.node]].states.append(state)
        for output in self._plan.outputs:
            if isinstance(output.value, fx.Node):
                part = homes.get(output.value, self._home(output.value))
                self._drafts[part].outputs.append((output.name, output.value))
                self._names.setdefault(output.value, output.name)
        for draft in reversed(self._drafts):
            self._find_inputs(draft)

    def _home(self, node: fx.Node) -> int:
        """Return the part that computes a value; the last one for inputs and weights."""
        source = node.all_input_nodes[0] if is_number(node) and node.all_input_nodes else node
        return self._part_of.get(source, len(self._drafts) - 1)

    def _find_inputs(self, draft: _Draft) -> None:
        wanted = [n for call in draft.calls for n in call.all_input_nodes]
        wanted += [node for _, node in draft.outputs]
        wanted += [n for state in draft.states for n in (state.node, state.written)]
        numbers = []
        for node in wanted:
            if node.op == "call_function" and is_number(node) and not self._is_constant(node):
                numbers.append(node)
            else:
                self._take(node, draft)
        for node in numbers:
            self._take_number(node, draft)

    def _take_constant(self, node: fx.Node, draft: _Draft) -> None:
        """Compute what depends on weights alone in each part that uses it."""
        if node in draft.numbers:
            return
        for source in node.all_input_nodes:
            self._take(source, draft)
        draft.numbers[node] = None

    def _take(self, node: fx.Node, draft: _Draft) -> None:
        """Add a value from outside to a part: a weight, an input, or a result of another part."""
        if node in self._steps.constants:
            self._take_constant(node, draft)
            return
        mine = self._part_of.get(node)
        if mine is not None and self._drafts[mine] is draft:
            return
        spec = self._specs.get(node.name) if node.op == "placeholder" else None
        is_state = any(state.node is node for state in self._plan.states)
        if node.op == "get_attr" or (spec is not None and not self._is_input(spec)) or is_state:
            draft.stored[node] = None
        elif node not in draft.inputs:
            draft.inputs[node] = None
            if mine is not None:
                self._return(node, self._drafts[mine])

    def _is_constant(self, node: fx.Node) -> bool:
        return node in self._steps.constants

    def _is_input(self, spec: InputSpec) -> bool:
        return bool(spec.kind is InputKind.USER_INPUT)

    def _return(self, node: fx.Node, draft: _Draft) -> None:
        if all(value is not node for _, value in draft.outputs):
            draft.outputs.append((self._name(node), node))

    def _name(self, node: fx.Node) -> str:
        """Return the name of a value in the chain; it differs from those of all others."""
        if node not in self._names:
            taken = {*self._names.values(), *(s.name for s in self._plan.states)}
            taken |= {o.name for o in self._plan.outputs}
            name, count = node.name, 0
            while name in taken:
                count += 1
                name = f"{node.name}_{count}"
            self._names[node] = name
        return self._names[node]

    def _take_number(self, node: fx.Node, draft: _Draft) -> None:
        """Compute a size in the part: from the size of an input, or from other numbers."""
        if node in draft.sizes or node in draft.numbers or node in draft.inputs:
            return
        place = _place(node, draft)
        if place is not None:
            draft.sizes[node] = place
            return
        far = [n for n in node.all_input_nodes if n in self._part_of]
        far = [n for n in far if not self._is_mine(n, draft)]
        if far:
            home = self._drafts[self._part_of[far[0]]]
            draft.inputs[node] = None
            self._return(node, home)
            self._take_number(node, home)
            return
        for source in node.all_input_nodes:
            if is_number(source) and not self._is_constant(source):
                self._take_number(source, draft)
            elif source not in self._part_of:
                self._take(source, draft)
        draft.numbers[node] = None

    def _is_mine(self, node: fx.Node, draft: _Draft) -> bool:
        mine = self._part_of.get(node)
        return mine is not None and self._drafts[mine] is draft

    def parts(self, values: Mapping[fx.Node, Any]) -> list[Part]:
        """Return the parts; `values` has an example of each value that crosses a cut."""
        for draft in self._drafts:
            own = _nodes(draft.states)
            for state in self._plan.states:
                if state.node in draft.stored and state.node not in own:
                    raise ConversionError(
                        f"the state {state.name!r} is used in more than one part\n"
                        "  try   pass fewer parts"
                    )
        return [self._build(draft, values) for draft in self._drafts]

    def _build(self, draft: _Draft, values: Mapping[fx.Node, Any]) -> Part:
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        stored = [n for n in self._program.graph.nodes if n in draft.stored]
        for node in [n for n in stored if n.op == "placeholder"]:
            made[node] = _copy(graph, node, made)
        for node in draft.inputs:
            made[node] = graph.placeholder(node.name)
            made[node].name = node.name
            made[node].meta = dict(node.meta)
        for node in [n for n in stored if n.op == "get_attr"]:
            made[node] = _copy(graph, node, made)
        for node, (source, axis) in draft.sizes.items():
            made[node] = graph.call_function(aten.sym_size.int, (made[source], axis))
            made[node].meta = dict(node.meta)
        body = {*draft.calls, *draft.numbers}
        for node in self._program.graph.nodes:
            if node in body:
                made[node] = _copy(graph, node, made)
        written = [made[state.written] for state in draft.states]
        returned = [made[node] for _, node in draft.outputs]
        graph.output((*written, *returned))
        return self._part(draft, graph, made, values)

    def _part(
        self,
        draft: _Draft,
        graph: fx.Graph,
        made: Mapping[fx.Node, fx.Node],
        values: Mapping[fx.Node, Any],
    ) -> Part:
        module = fx.GraphModule(self._program.graph_module, graph)
        placeholders = {n.name: n for n in graph.nodes if n.op == "placeholder"}
        inputs = [self._specs.get(name) or _user(node) for name, node in placeholders.items()]
        states = {made[state.node]: state for state in draft.states}
        leaves = {made[n]: values[n] for n in draft.inputs}
        leaves.update((node, values[state.node]) for node, state in states.items())
        given = [p for p, s in zip(placeholders.values(), inputs, strict=True) if self._is_input(s)]
        examples, in_spec = flat_inputs([leaves[node] for node in given])
        outputs = [self._write(state, made) for state in draft.states]
        outputs += [
            OutputSpec(OutputKind.USER_OUTPUT, argument(made[n]), None) for _, n in draft.outputs
        ]
        out_spec = named_outputs([name for name, _ in draft.outputs])
        signature = Signature(inputs, outputs, in_spec, out_spec)
        program = with_graph(self._program, module, example_inputs=examples, signature=signature)
        names = Names(
            [self._names[n] for n in draft.inputs if n not in _nodes(draft.states)],
            [name for name, _ in draft.outputs],
            [states[p].name for p in placeholders.values() if p in states],
        )
        size = sum(self._steps.weights.get(node, 0) for node in draft.stored)
        first = draft.calls[0] if draft.calls else next(iter(self._program.graph.nodes))
        return Part(program, names, size, first)

    def _write(self, state: State, made: Mapping[fx.Node, fx.Node]) -> OutputSpec:
        spec = self._specs[state.node.name]
        if self._is_input(spec):
            kind, target = OutputKind.USER_INPUT_MUTATION, state.node.name
        else:
            kind, target = BUFFER_WRITES[0], spec.target
        return OutputSpec(kind, argument(made[state.written]), target)


def _nodes(states: Sequence[State]) -> list[fx.Node]:
    return [state.node for state in states]


def _place(node: fx.Node, draft: _Draft) -> tuple[fx.Node, int] | None:
    """Return the input of the part and the axis that has the size of a number, if any."""
    number = node.meta.get("val")
    if not isinstance(number, torch.SymInt):
        return None
    for source in draft.inputs:
        value = source.meta["val"]
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr == number.node.expr:
                return source, axis
    return None


def _copy(graph: fx.Graph, node: fx.Node, made: Mapping[fx.Node, fx.Node]) -> fx.Node:
    copied = graph.node_copy(node, lambda n: made[n])
    copied.name = node.name
    copied.meta = dict(node.meta)
    return copied


def _user(node: fx.Node) -> InputSpec:
    return InputSpec(InputKind.USER_INPUT, argument(node), None)
