"""Compute a captured decoder in the layout of the Neural Engine, op by op."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn

from ....errors import ConversionError
from ....torch_compat import aten
from . import rules
from .attention_ops import Attention
from .capturing import ATTENTION, Captured
from .layout import LayoutError, Placed, from_tokens
from .positions import TRY, Tables


class Rewritten(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The decoder with 1x1 convolutions; its constants are those of the model, without a copy."""

    def __init__(self, captured: Captured, context: int) -> None:
        super().__init__()
        self.captured, self.context = captured, context
        self.positions = Tables(captured, context)
        self.tables = nn.ParameterList(
            nn.Parameter(one, requires_grad=False) for one in self.positions.tables
        )
        self.names: dict[str, str] = {}
        for node in captured.program.graph.nodes:
            if node.op == "placeholder" and node.name in captured.constants and node.users:
                self._register(node)

    def _register(self, node: fx.Node) -> None:
        value = self.captured.constants[node.name]
        if _is_kernel(node):
            if self.is_tied(value):
                return
            value = value[:, :, None, None]
        self.names[node.name] = name = f"constant_{len(self.names)}"
        self.register_buffer(name, value)

    def is_tied(self, weight: Tensor) -> bool:
        """Return whether a weight is the table of embeddings."""
        table = self.captured.embedding
        return bool(weight.data_ptr() == table.data_ptr() and weight.shape == table.shape)

    def run(
        self,
        embeddings: Tensor,
        positions: Tensor,
        table: Tensor,
        attention: Attention,
        *,
        wants_logits: bool,
    ) -> Placed | None:
        """Run `[1, tokens, 1, hidden]` embeddings; return the logits if they are wanted."""
        captured = self.captured
        last = captured.logits
        ends = [last] if wants_logits else [one for a in captured.attention for one in a.args[1:3]]
        needed = _ancestors(ends)
        values: dict[fx.Node, Any] = dict(self.positions.read(positions, list(self.tables)))
        values[captured.inputs[0]] = from_tokens(embeddings.permute(0, 3, 2, 1))
        for node in captured.program.graph.nodes:
            if node.op == "placeholder" and node.name in self.names:
                values[node] = getattr(self, self.names[node.name])
            elif node.target is ATTENTION:
                values[node] = self._attend(node, values, attention, node in needed)
            elif node in needed and self._is_computed(node) and node not in values:
                values[node] = self._compute(node, values, table)
        return values[last] if wants_logits else None

    def _is_computed(self, node: fx.Node) -> bool:
        return node.op == "call_function" and node not in self.positions.nodes

    def _attend(
        self, node: fx.Node, values: dict[fx.Node, Any], attention: Attention, is_needed: bool
    ) -> Placed | None:
        query, key, value, layer, scaling, window = fx.map_arg(node.args, values.get)
        attention.write(key, value, layer)
        if not is_needed:
            return None
        width = node.args[2].meta["val"].shape[3]
        seen = window if window < self.context else 0
        return attention.attend(query, layer, scaling, width, seen)

    def _compute(self, node: fx.Node, values: dict[fx.Node, Any], table: Tensor) -> Any:
        if node.target is aten.linear.default and node.args[1] not in values:
            return _head(values[node.args[0]], table)
        args, kwargs = (fx.map_arg(one, values.__getitem__) for one in (node.args, node.kwargs))
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not any(isinstance(one, Placed) for one in _leaves(args)):
            return node.target(*args, **kwargs)
        try:
            if node.target not in rules.RULES:
                raise LayoutError("it has no rule")
            return rules.RULES[node.target](node, *args, **kwargs)
        except LayoutError as error:
            raise ConversionError(
                f"a static bundle cannot compute {node.target}, which the decoder uses: {error}"
                f"{TRY}"
            ) from error


def _head(x: Placed, table: Tensor) -> Placed:
    """Compute logits by the table of embeddings `[vocabulary, 1, hidden]`."""
    kernel = table.permute(1, 0, 2)[None].to(x.data.dtype)
    logits = torch.matmul(kernel, x.data.permute(0, 2, 1, 3))
    return from_tokens(logits.permute(0, 2, 1, 3))


def _is_kernel(node: fx.Node) -> bool:
    """Return whether all uses of a constant are weights of linear layers."""
    return all(
        user.target is aten.linear.default and user.args[1] is node and node not in user.args[::2]
        for user in node.users
    )


def _ancestors(ends: Iterable[Any]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = list(ends)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _leaves(args: Any) -> list[Any]:
    return [leaf for one in args for leaf in (one if isinstance(one, list | tuple) else [one])]
