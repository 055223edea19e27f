"""Rewrite a captured program so that its inputs and outputs have the types that an app passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument

from ..capture.wrapper import Wrapper
from ..fx.editing import Writer, output_of
from ..fx.programs import (
    Signature,
    copied_module,
    example_leaves,
    output_specs,
    user_inputs,
    with_graph,
)
from ..torch_compat import aten, pytree
from .images import ImageInput

Convert = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class BoolPort:
    """A bool input or output that is a number in the program: zero is False."""

    dtype: torch.dtype


Adapter = ImageInput | BoolPort


class Adapted(Wrapper):
    """The model behind the same adapters, computed in torch; attributes are those of the model."""

    def __init__(
        self, model: torch.nn.Module, inputs: Mapping[int, Convert], output: Convert
    ) -> None:
        super().__init__(model)
        self._inputs, self._output = inputs, output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adapt the inputs, call the model and adapt its outputs."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        given = [self._inputs[i](leaf) if i in self._inputs else leaf for i, leaf in _each(leaves)]
        args, kwargs = pytree.tree_unflatten(given, spec)
        return pytree.tree_map(self._output, self.wrapped(*args, **kwargs))


def _each(leaves: list[Any]) -> list[tuple[int, Any]]:
    return list(enumerate(leaves))


def adapt(
    program: torch.export.ExportedProgram,
    inputs: Mapping[str, Adapter],
    outputs: BoolPort | None = None,
) -> torch.export.ExportedProgram:
    """Return a copy of the program with adapters at its border.

    `inputs` has an adapter by the name of a placeholder. `outputs` is the adapter of bool outputs.
    """
    module = copied_module(program.graph_module)
    rewrite = _Rewrite(program, module.graph)
    for node in [n for n in module.graph.nodes if n.op == "placeholder" and n.name in inputs]:
        rewrite.input(node, inputs[node.name])
    if outputs is not None:
        rewrite.bool_outputs(outputs.dtype)
    ports = [*rewrite.added, *program.graph_signature.input_specs]
    return with_graph(
        program,
        module,
        weights=rewrite.constants,
        example_inputs=_examples(program, inputs),
        signature=Signature(ports, output_specs(program, module.graph)),
    )


def reference(
    model: torch.nn.Module,
    program: torch.export.ExportedProgram,
    inputs: Mapping[str, Adapter],
    outputs: BoolPort | None,
) -> torch.nn.Module:
    """Return the model behind adapters; `program` is the program before they were added."""
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    before = {
        index: _torch_adapter(inputs[name], nodes[name].meta["val"].dtype)
        for index, name in enumerate(user_inputs(program))
        if name in inputs
    }
    return Adapted(model, before, _torch_output(outputs))


def from_model(adapter: Adapter, value: Any) -> Any:
    """Return an input of the program for an input of the model, or the input as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(adapter, ImageInput):
        return value if value.dtype == torch.uint8 else adapter.pixels(value)
    return value.to(adapter.dtype)


def _examples(program: torch.export.ExportedProgram, inputs: Mapping[str, Adapter]) -> Any:
    leaves = example_leaves(program)
    if leaves is None:
        return None
    names = user_inputs(program)
    adapted = [
        from_model(inputs[name], leaf) if name in inputs else leaf
        for name, leaf in zip(names, leaves, strict=True)
    ]
    return pytree.tree_unflatten(adapted, program.call_spec.in_spec)


def _torch_adapter(adapter: Adapter, dtype: torch.dtype) -> Convert:
    if isinstance(adapter, ImageInput):
        return lambda pixels: adapter.preprocess(pixels, dtype)
    return lambda number: number != 0


def _torch_output(adapter: BoolPort | None) -> Convert:
    def convert(value: Any) -> Any:
        is_bool = isinstance(value, torch.Tensor) and value.dtype == torch.bool
        return value.to(adapter.dtype) if is_bool and adapter is not None else value

    return convert


class _Rewrite:
    """One rewrite of the graph of a program."""

    def __init__(self, program: torch.export.ExportedProgram, graph: fx.Graph) -> None:
        self._program, self._graph = program, graph
        self._first = next(iter(graph.nodes))
        self._body = next(n for n in graph.nodes if n.op != "placeholder")
        self.added: list[InputSpec] = []
        self.constants: dict[str, torch.Tensor] = {}

    def input(self, node: fx.Node, adapter: Adapter) -> None:
        """Change the type of an input and convert it for its users."""
        value = node.meta["val"]
        if isinstance(adapter, ImageInput):
            shape, dtype = adapter.shape(value.shape), torch.uint8
            steps = list(adapter.steps(value.ndim, *self._factors(node, adapter), value.dtype))
        else:
            shape, dtype = list(value.shape), adapter.dtype
            steps = [(aten.ne.Scalar, (0,), {})]
        users = list(node.users)
        node.meta = {**node.meta, "val": _fake(value, shape, dtype)}
        result, write = node, Writer(self._body, like=node)
        for op, args, named in steps:
            result = write.call(op, result, *args, **named)
        for user in users:
            user.replace_input_with(node, result)

    def _factors(self, node: fx.Node, adapter: ImageInput) -> tuple[Any, Any]:
        factors, offsets = adapter.factors()
        offset = self._constant(f"{node.name}_offset", offsets, node) if any(offsets) else None
        return self._constant(f"{node.name}_factor", factors, node), offset

    def _constant(self, name: str, values: list[float], like: fx.Node) -> Any:
        """Return a number, or a placeholder of a constant with one value for each channel."""
        if len(set(values)) == 1:
            return values[0]
        column = torch.tensor(values, dtype=torch.float64).to(torch.float32)[:, None, None]
        with self._graph.inserting_before(self._first):
            placeholder = self._graph.placeholder(name)
        with like.meta["val"].fake_mode as mode:
            placeholder.meta["val"] = mode.from_tensor(column, static_shapes=True)
        target = placeholder.name
        self.constants[target] = column
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), target)
        self.added.append(spec)
        return placeholder

    def bool_outputs(self, dtype: torch.dtype) -> None:
        """Cast the bool outputs; states keep their type."""
        output = output_of(self._graph)
        results = list(output.args[0])
        for index, spec in enumerate(self._program.graph_signature.output_specs):
            value = results[index]
            if spec.kind is OutputKind.USER_OUTPUT and isinstance(value, fx.Node):
                found = value.meta.get("val")
                if isinstance(found, torch.Tensor) and found.dtype == torch.bool:
                    results[index] = self._renamed(value, Writer(output, value).cast(value, dtype))
        output.args = (tuple(results),)

    def _renamed(self, value: fx.Node, cast: fx.Node) -> fx.Node:
        """Give the cast the name of the output, from which the name of the port is taken."""
        if value.op != "placeholder":
            value.name, cast.name = cast.name, value.name
        return cast


def _fake(like: Any, shape: list[Any], dtype: torch.dtype) -> torch.Tensor:
    with like.fake_mode:
        return torch.empty(shape, dtype=dtype)
