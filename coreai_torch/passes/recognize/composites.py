"""The composites that recognition puts into a graph, as ops of torch, and their lowering.

Each op computes what the module of `composite_ops` computes, so that a graph with composites in
it still runs in torch, and each is lowered to the composite that the externalized module is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ...composite_ops import RMSNormImpl, RoPE
from ...composite_ops._gather_mm import gather_mm as _gather_mm
from ...composite_ops._sdpa import _check
from ...composite_ops._sdpa import scaled_dot_product_attention as _sdpa
from ...ir.composite import Composite
from ...ir.dialect import Value
from ...lowering.binding import Call
from ...lowering.context import LowerSubgraph
from ...lowering.inline import trace
from .pattern import arguments

_SYMBOL = re.compile(r"\b[a-z]+\d+\b")
_LIBRARY = torch.library.Library("coreai_torch", "FRAGMENT")


def _rms_norm(input: Tensor, scale: Tensor, eps: float) -> Tensor:
    result: Tensor = RMSNormImpl(eps)(input, scale)
    return result


def _rope(input: Tensor, cos: Tensor, sin: Tensor, dims: int | None, interleaved: bool) -> Tensor:
    result: Tensor = RoPE(dims=dims, interleaved=interleaved)(input, cos, sin)
    return result


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    sinks: Tensor | None,
    scale: float,
) -> Tensor:
    return _sdpa(query, key, value, attn_mask, sinks, scale)


def _experts(
    lhs: Tensor, rhs: Tensor, lhs_indices: Tensor | None, rhs_indices: Tensor | None
) -> Tensor:
    return _gather_mm(lhs, rhs, lhs_indices, rhs_indices, 0)


def _like_input(input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def _attention_shape(query: Tensor, key: Tensor, value: Tensor, *masks: Any) -> Tensor:
    _check(query, key, value, *masks[:2])
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _rope_shape(
    input: Tensor, cos: Tensor, sin: Tensor, dims: int | None, interleaved: bool
) -> Tensor:
    module = RoPE(dims=dims, interleaved=interleaved)
    width = module._rotated_width(input.shape[-1])
    for name, table in (("cos", cos), ("sin", sin)):
        module._table(name, table, input, width)
    return torch.empty_like(input)


def _op(schema: str, function: Callable[..., Tensor], fake: Callable[..., Tensor]) -> Any:
    """An op of torch; `fake` says what it gives, in less time than tracing the function takes."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"coreai_torch::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.coreai_torch, name).default


rms_norm = _op("rms_norm(Tensor input, Tensor scale, float eps) -> Tensor", _rms_norm, _like_input)
rope = _op(
    "rope(Tensor input, Tensor cos, Tensor sin, int? dims, bool interleaved) -> Tensor",
    _rope,
    _rope_shape,
)
attention = _op(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, "
    "Tensor? sinks, float scale) -> Tensor",
    _attention,
    _attention_shape,
)
gather_mm = _op(
    "gather_mm(Tensor lhs, Tensor rhs, Tensor? lhs_indices, Tensor? rhs_indices) -> Tensor",
    _experts,
    _experts,
)


def _rope_attrs(given: Mapping[str, Any]) -> dict[str, Any]:
    attrs = {"scale": 1.0, "base": 1e4, "interleaved": given["interleaved"]}
    return attrs if given["dims"] is None else {**attrs, "dims": given["dims"]}


@dataclass(frozen=True)
class CompositeLowering:
    """Lowers an op to a composite whose body is the op's own function, traced on the spot."""

    target: Any
    fn: Callable[..., Tensor]
    attrs: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    origin: str = "built-in"

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Value:
        """Emit the composite; its operands are the tensors that are there."""
        given = arguments(call.node)
        tensors = {name: node for name, node in given.items() if isinstance(node, fx.Node)}

        def body(*values: Value) -> list[Any]:
            graph, inputs = trace(self.fn, call.node)
            by_node = dict(zip(reversed(tensors.values()), reversed(values), strict=True))
            return lower_subgraph(graph, [by_node[node] for node in inputs])

        name = self.target._schema.name.partition("::")[2]
        contract = Composite(name, inputs=tuple(tensors), attrs=self.attrs(given))
        operands = [call.scope.value(node) for node in tensors.values()]
        (result,) = contract.emit(body, *operands, variant=_sizes(tensors.values()))
        return result


def _sizes(nodes: Iterable[fx.Node]) -> str:
    """The shapes, with symbols numbered as they come.

    Types show a size as unknown, but the traced body of self-attention takes the length of the
    keys for that of the queries: it must not serve for cross-attention.
    """
    symbols: dict[str, str] = {}
    shapes = str([list(node.meta["val"].shape) for node in nodes])
    return _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"n{len(symbols)}"), shapes)


def lowerings() -> Iterator[CompositeLowering]:
    """What a converter registers in order to lower the ops above."""
    yield CompositeLowering(rms_norm, _rms_norm, lambda given: {"axes": -1, "eps": given["eps"]})
    yield CompositeLowering(rope, _rope, _rope_attrs)
    yield CompositeLowering(
        attention,
        _attention,
        lambda given: {"scale": given["scale"], "is_causal": False, "window_size": 0},
    )
    yield CompositeLowering(gather_mm, _experts, lambda given: {"num_batch_axes": 0})
