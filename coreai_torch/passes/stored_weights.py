"""The parameters, buffers and constants of an exported program, which passes replace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument

_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class StoredWeights:
    """The stored tensors of a program by their placeholders; not those that it writes."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self._added: dict[str, fx.Node] = {}
        written = {*self.signature.buffers_to_mutate.values()}
        self._specs = {
            spec.arg.name: spec
            for spec in self.signature.input_specs
            if spec.kind in _KINDS and spec.target not in written
        }

    @property
    def signature(self) -> ExportGraphSignature:
        """The signature of the program."""
        return self.program.graph_signature

    @property
    def graph(self) -> fx.Graph:
        """The graph of the program."""
        return self.program.graph_module.graph

    def nodes(self) -> Iterator[fx.Node]:
        """Yield the placeholders of stored tensors."""
        for node in self.graph.nodes:
            if self.tensor(node) is not None:
                yield node

    def tensor(self, node: fx.Node) -> Tensor | None:
        """Return the stored tensor of a placeholder; None for other nodes and other classes."""
        spec = self._specs.get(node.name) if node.op == "placeholder" else None
        found = None if spec is None else self._table(spec)[spec.target]
        return found if type(found) in (Tensor, torch.nn.Parameter) else None

    def kind(self, node: fx.Node) -> InputKind:
        """Return whether a placeholder is a parameter, a buffer or a constant."""
        return self._specs[node.name].kind

    def add(self, parts: Sequence[fx.Node], tensor: Tensor) -> fx.Node:
        """Add a placeholder that takes the place of several, named after all of them."""
        first, specs = parts[0], [self._specs[part.name] for part in parts]
        name = _joined_name([str(spec.target) for spec in specs])
        if name in self._added:
            return self._added[name]
        with self.graph.inserting_before(first):
            node: fx.Node = self.graph.placeholder(f"{first.name}_joined")
        fake = first.meta["val"].new_empty_strided(tensor.shape, tensor.stride())
        node.meta = {**first.meta, "val": fake}
        kind, persistent = specs[0].kind, specs[0].persistent
        spec = InputSpec(kind, TensorArgument(name=node.name), name, persistent)
        listed = self.signature.input_specs
        listed.insert(listed.index(specs[0]), spec)
        is_parameter = kind is InputKind.PARAMETER
        stored = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
        self._table(specs[0])[name] = stored
        self._specs[node.name], self._added[name] = spec, node
        return node

    def drop_unused(self) -> None:
        """Remove the stored tensors that nothing reads, so that their memory is freed."""
        for node in list(self.graph.nodes):
            if node.op == "placeholder" and node.name in self._specs and not node.users:
                spec = self._specs.pop(node.name)
                self._table(spec).pop(spec.target)
                self.signature.input_specs.remove(spec)
                self.graph.erase_node(node)

    def _table(self, spec: InputSpec) -> dict[str | None, Any]:
        """Return the dictionary that contains a stored tensor."""
        tables: list[dict[str | None, Any]] = [self.program.state_dict, self.program.constants]
        return next(table for table in tables if spec.target in table)


def _joined_name(names: Sequence[str]) -> str:
    """Return one path for several: `attn.q+k.weight` for `attn.q.weight` and `attn.k.weight`."""
    paths = [name.split(".") for name in names]
    if len({len(path) for path in paths}) > 1:
        return "+".join(names)
    return ".".join("+".join(dict.fromkeys(level)) for level in zip(*paths, strict=True))
