"""Lower the ops that pattern recognition creates to composites.

Each becomes the same composite as the externalized module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx as fx
from torch import Tensor

from ..fx.tracing import trace
from ..ir.composite import Composite
from ..ir.dialect import Value
from ..lowering.binding import Call
from ..lowering.cases import Case
from ..lowering.entry import BUILT_IN, Entry, LowerSubgraph
from ..lowering.registry import Lowering, builtin_decompositions
from ..passes.recognize.composites import (
    attention,
    compute_gather_mm,
    compute_rms_norm,
    compute_rope,
    gather_mm,
    rms_norm,
    rope,
)
from ..passes.recognize.pattern import arguments
from ..torch_compat import schema_of
from .nn.attention import recognized_attention

_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


def _rope_attrs(given: Mapping[str, Any]) -> dict[str, Any]:
    attrs = {"scale": 1.0, "base": 1e4, "interleaved": given["interleaved"]}
    return attrs if given["dims"] is None else {**attrs, "dims": given["dims"]}


@dataclass(frozen=True)
class CompositeLowering:
    """Lower an op to a composite whose body is the op's function, traced for this call."""

    target: Any
    fn: Callable[..., Tensor]
    attrs: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    origin: str = BUILT_IN
    cases: Sequence[Case] = ()

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Value:
        """Emit the composite; its operands are the tensor arguments that were passed."""
        given = arguments(call.node)
        tensors = {name: node for name, node in given.items() if isinstance(node, fx.Node)}

        def body(*values: Value) -> list[Any]:
            graph, inputs = trace(self.fn, call.node, builtin_decompositions())
            by_node = dict(zip(reversed(tensors.values()), reversed(values), strict=True))
            return lower_subgraph(graph, [by_node[node] for node in inputs])

        name = schema_of(self.target).name.partition("::")[2]
        contract = Composite(name, inputs=tuple(tensors), attrs=self.attrs(given))
        operands = [call.scope.value(node) for node in tensors.values()]
        (result,) = contract.emit(body, *operands, variant=_sizes(tensors.values()))
        return result


def _sizes(nodes: Iterable[fx.Node]) -> str:
    """Return the shapes as text, with symbols numbered in order of appearance.

    The MLIR types show a dynamic size as unknown, but the traced body of self-attention uses the
    key length as the query length; it must not be reused for cross-attention.
    """
    symbols: dict[str, str] = {}
    shapes = str([list(node.meta["val"].shape) for node in nodes])
    return _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"n{len(symbols)}"), shapes)


def lowerings() -> Iterator[Entry]:
    """Yield the lowerings that a converter registers for the recognized ops."""
    yield CompositeLowering(
        rms_norm, compute_rms_norm, lambda given: {"axes": -1, "eps": given["eps"]}
    )
    yield CompositeLowering(rope, compute_rope, _rope_attrs)
    yield Lowering(attention, recognized_attention)
    yield CompositeLowering(gather_mm, compute_gather_mm, lambda given: {"num_batch_axes": 0})
