"""Replace the random numbers of a decomposed program by inputs, or by those of a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import torch
from torch import fx
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from ...errors import ConversionError, describe
from ...fx.editing import inline
from ...fx.programs import Signature, copied_module, example_leaves, output_specs, with_graph
from ...fx.tracing import trace
from ...torch_compat import pytree
from . import generator
from .draw import SEED, Draw, Randomness, mark
from .table import INTEGERS, KINDS

Table = Mapping[Any, Callable[..., Any]]


@dataclass(frozen=True)
class Rewritten:
    """A program that takes its random numbers, and these in the order in which torch draws them."""

    program: torch.export.ExportedProgram
    draws: Sequence[Draw] = ()
    names: Sequence[str] = ()  # of the added inputs
    seeded: bool = False


def with_draws(
    program: torch.export.ExportedProgram, randomness: Randomness, table: Table
) -> Rewritten:
    """Return a copy of the program that takes its random numbers, or a seed, as inputs."""
    module = copied_module(program.graph_module)
    _reject_branches(module)
    nodes = [node for node in module.graph.nodes if node.target in KINDS]
    if not nodes:
        return Rewritten(program)
    draws = _placed([_draw(node) for node in nodes])
    ports = _Ports(module.graph)
    if randomness is Randomness.INPUT:
        for node, draw in zip(nodes, draws, strict=True):
            _become_input(node, draw, ports)
    else:
        _compute(nodes, draws, ports, table)
    module.graph.lint()
    module.recompile()
    return Rewritten(
        ports.added_to(program, module),
        draws,
        [*ports.examples],
        bool(randomness is Randomness.SEED),
    )


def _reject_branches(module: fx.GraphModule) -> None:
    """Raise if a branch or the body of a loop draws."""
    for inner in module.children():
        if isinstance(inner, fx.GraphModule):
            for node in inner.graph.nodes:
                if node.target in KINDS:
                    problem = "random numbers are drawn in a branch or the body of a loop"
                    hint = "draw them before it, for all of its steps"
                    raise ConversionError(describe(node, problem, hint))
            _reject_branches(inner)


def _draw(node: fx.Node) -> Draw:
    """Read what a base op draws."""
    value = node.meta["val"]
    draw = Draw(KINDS[node.target], value.dtype, tuple(value.shape))
    if node.target is INTEGERS:
        low, high = node.args[:2]
        if not (isinstance(low, int) and isinstance(high, int)):
            _refuse(node, "randint has bounds that are known at run time only", "pass numbers")
        draw = replace(draw, low=low, high=high)
    elif not value.dtype.is_floating_point:
        _refuse(node, f"random numbers of {value.dtype}", "draw the real and imaginary parts")
    return draw


def _placed(draws: Sequence[Draw]) -> list[Draw]:
    """Give each draw its own numbers: a part of stream 0, or a stream if its size is dynamic."""
    placed, start, stream = [], 0, 0
    for draw in draws:
        count = generator.count(draw, draw.size)
        if isinstance(count, int):
            placed.append(replace(draw, start=start))
            start += count
        else:
            stream += 1
            placed.append(replace(draw, stream=stream))
    return placed


def _become_input(node: fx.Node, draw: Draw, ports: _Ports) -> None:
    value = node.meta["val"]
    hinted: list[Any] = [_hint(size) for size in value.shape]
    if None in hinted:
        hint = 'pass random="seed"'
        _refuse(node, "the number of random numbers follows from values", hint)
    example = draw.sample(hinted, torch.Generator().manual_seed(len(ports.examples)))
    name, node.name = node.name, f"_{node.name}"  # the input gets its name
    node.replace_all_uses_with(ports.add(name, draw, value, example))
    node.graph.erase_node(node)


def _hint(size: Any) -> int | None:
    """Return the size that the example has."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _compute(nodes: Sequence[fx.Node], draws: Sequence[Draw], ports: _Ports, table: Table) -> None:
    """Compute the draws of static size together, and each other one where it is."""
    like = nodes[0].meta["val"]
    with like.fake_mode:
        value = torch.empty(1, dtype=torch.int32)
    seed = ports.add(SEED, Draw(SEED, torch.int32, (1,)), value, torch.zeros(1, dtype=torch.int32))
    total = sum(generator.count(one, one.size) for one in draws if not one.stream)
    if total > generator.PERIOD:
        hint = 'draw fewer, or pass random="input"'
        _refuse(nodes[0], f"{total:,} random numbers are more than a seed makes", hint)
    pool = _pool(nodes[0].graph, seed, total, table) if total else []
    for node, draw in zip(nodes, draws, strict=True):
        if draw.high - draw.low > generator.PERIOD:
            hint = 'draw from a smaller range, or pass random="input"'
            _refuse(node, f"a range of {draw.high - draw.low:,} is more than a seed makes", hint)
        size = node.args[2] if node.target is INTEGERS else node.args[0]
        made = _from_seed if draw.stream else _from_pool
        given = (seed,) if draw.stream else pool
        _expand(node, partial(made, draw), (*given, size), table)


def _from_seed(draw: Draw, seed: torch.Tensor, size: Sequence[Any]) -> torch.Tensor:
    return generator.sample(seed, draw, size)


def _from_pool(
    draw: Draw, left: torch.Tensor, right: torch.Tensor, size: Sequence[Any]
) -> torch.Tensor:
    end = draw.start + generator.count(draw, size)
    return generator.numbers((left[draw.start : end], right[draw.start : end]), draw, size)


def _pool(graph: fx.Graph, seed: fx.Node, total: int, table: Table) -> list[fx.Node]:
    """Compute the pairs of residues of all draws of static size."""
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        call = graph.call_function(generator.blocks)
    call.meta["val"] = []
    return _expand(call, lambda one: generator.blocks(one, 0, total, 0), (seed,), table)


def _expand(
    node: fx.Node, function: Callable[..., Any], args: tuple[Any, ...], table: Table
) -> list[fx.Node]:
    """Replace a node by the ops of a function of other arguments."""
    node.target, node.args, node.kwargs = function, args, {}
    traced, inputs = trace(function, node, table)
    return inline(node, traced, inputs, f"_random_{node.name}")


def _refuse(node: fx.Node, problem: str, hint: str) -> NoReturn:
    raise ConversionError(describe(node, problem, hint))


@dataclass
class _Ports:
    """The inputs that are added to a graph, after the others."""

    graph: fx.Graph
    specs: list[InputSpec] = field(default_factory=list)
    examples: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(self, wanted: str, draw: Draw, value: torch.Tensor, example: torch.Tensor) -> fx.Node:
        """Add an input with a fake value; its name is the wanted one, with a number if taken."""
        first = next(node for node in self.graph.nodes if node.op != "placeholder")
        with self.graph.inserting_before(first):
            made = self.graph.placeholder(wanted)
        if all(node.name != wanted for node in self.graph.nodes):
            made.name = made.target = wanted  # of an erased node
        made.meta["val"] = value
        mark(made, draw)
        spec = InputSpec(InputKind.USER_INPUT, TensorArgument(made.name), None)
        self.specs.append(spec)
        self.examples[made.name] = example
        return made

    def added_to(
        self, program: torch.export.ExportedProgram, module: fx.GraphModule
    ) -> torch.export.ExportedProgram:
        """Return the program with this graph, which takes the inputs as keyword arguments."""
        signature, given = program.graph_signature, example_leaves(program)
        spec = program.call_spec.in_spec
        leaves = range(spec.num_leaves) if given is None else given
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        arguments = (args, {**kwargs, **self.examples})
        return with_graph(
            program,
            module,
            example_inputs=None if given is None else arguments,
            signature=Signature(
                [*signature.input_specs, *self.specs],
                output_specs(program, module.graph),
                pytree.tree_flatten(arguments)[1],
            ),
        )
