"""The context of a lowering: what it can ask about its node beyond the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.fx as fx

from ..ir import types
from ..ir.build import Build
from ..ir.composite import Composite
from ..ir.dialect import Dim, RankedTensorType, Value
from ..torch_compat import schema_of
from .binding import Call
from .entry import LowerSubgraph


@dataclass(frozen=True)
class Ctx:
    """Result types of the node, and ways to raise, to lower a subgraph, to emit a composite."""

    call: Call
    _lower_subgraph: LowerSubgraph

    @property
    def out(self) -> RankedTensorType:
        """The result type that the exported graph promises."""
        return types.ranked(self.call.node.meta["val"])

    @property
    def outs(self) -> list[RankedTensorType]:
        """The promised types of an op with several results."""
        return [types.ranked(v) for v in self.call.node.meta["val"]]

    @property
    def out_dtype(self) -> torch.dtype:
        """The dtype of the first result, with 64 bits narrowed to 32."""
        val = self.call.node.meta["val"]
        first = val[0] if isinstance(val, list | tuple) else val
        dtype = first.dtype if isinstance(first, torch.Tensor) else types.scalar_dtype(first)
        return types.narrow(dtype)

    @property
    def exact(self) -> bool:
        """Whether to guard infinities, NaN and overflow even if that takes more than two ops."""
        return Build.current().exact

    def dims(self, given: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the sizes of the result: static ones from the graph, else the given ones."""
        return tuple(
            g if promised == types.DYNAMIC else int(promised)
            for g, promised in zip(given, self.out.shape, strict=True)
        )

    def uses(self, result: int) -> bool:
        """Whether any node reads this result."""
        return any(
            # Export emits a getitem for every result, used or not.
            user.args[1] == result and bool(user.users) if user.op == "call_function" else True
            for user in self.call.node.users
        )

    def known(self, name: str) -> torch.Tensor | None:
        """Return the argument with this schema name if it is a constant tensor, else None."""
        stored = self.call.scope.resolve(self._given(name))
        return stored if isinstance(stored, torch.Tensor) else None

    def number(self, name: str) -> float | None:
        """Return the argument with this schema name if it is a Python number, else None."""
        given = self._given(name)
        return given if isinstance(given, int | float) else None

    def known_each(self, name: str) -> list[torch.Tensor | None]:
        """Return `known` for each tensor of a list argument."""
        stored = self.call.scope.resolve(self._given(name))
        return [h if isinstance(h, torch.Tensor) else None for h in stored]

    def never_negative(self, name: str) -> list[bool]:
        """Return for each tensor of a list argument whether its integers are known to be >= 0."""
        ranges = self.call.scope.ranges
        return [isinstance(g, fx.Node) and ranges.of(g).low >= 0 for g in self._given(name)]

    def path(self, name: str) -> str:
        """Return the origin of an argument: the path of a parameter, or the name of a node."""
        node = self._given(name)
        return str(self.call.scope.names.get(node, node.name))

    def fake(self, name: str) -> Any:
        """Return the fake tensor of an argument, with symbolic sizes and strides."""
        return fx.node.map_arg(self._given(name), lambda n: n.meta["val"])

    def _given(self, name: str) -> Any:
        schema, node = schema_of(self.call.node.target), self.call.node
        for i, argument in enumerate(schema.arguments):
            if argument.name == name:
                return node.args[i] if i < len(node.args) else node.kwargs.get(name)
        raise KeyError(f"{name!r} is not an argument of {schema}")

    def refuse(self, what: str, hint: str | None = None) -> NoReturn:
        """Raise an error that names the op, its place and a hint."""
        raise self.call.refuse(what) if hint is None else self.call.refuse(what, hint)

    def lower_subgraph(self, graph: fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Lower another FX graph at this place, with the same passes and walker."""
        return self._lower_subgraph(graph, operands)

    def emit(self, composite: Composite, body: Callable[..., Any], *operands: Value) -> list[Value]:
        """Emit a composite: `body` is its fallback, built once per contract and types."""
        return composite.emit(body, *operands)


__all__ = ["Ctx", "Dim"]
