"""Batch norms that vanish into the convolution before them, worked out in torch.

The compiler's own rewrite does this with its slow constant folder: it is most of the time a
ResNet-50 takes to optimize. It also folds in the weights' dtype, so only float32 is merged here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..torch_compat import aten
from .registry import Registry
from .scope import Scope

_CONVOLUTION = aten.convolution.default
_NORM = aten._native_batch_norm_legit_no_training.default


@dataclass(frozen=True)
class Merged:
    """A convolution and the batch norm that scales its channels."""

    convolution: fx.Node
    norm: fx.Node
    weight: torch.Tensor
    bias: torch.Tensor

    def call(self, scope: Scope) -> tuple[fx.Node, Scope]:
        """The one convolution that stands for both, in a scope of its own."""
        graph = fx.Graph()
        x, weight, bias = (graph.placeholder(name) for name in ("x", "weight", "bias"))
        source, old_weight = self.convolution.all_input_nodes[:2]
        node = graph.call_function(_CONVOLUTION, (x, weight, bias, *self.convolution.args[3:]))
        node.meta = self.convolution.meta
        x.meta = source.meta
        name = scope.names.get(old_weight, "weight")
        inner = Scope({weight: name, bias: f"{name}.merged_bias"})
        inner.hold(x, scope.nodes[source])
        inner.hold(weight, self.weight)
        inner.hold(bias, self.bias)
        return node, inner


def merges(
    calls: Iterable[fx.Node], outside: Collection[fx.Node], scope: Scope, registry: Registry
) -> dict[fx.Node, Merged]:
    """What can be merged among these nodes, by the batch norm's node."""
    found: dict[fx.Node, Merged] = {}
    for norm in calls:
        if norm.target is not _NORM or norm in outside or not _reads_output_only(norm):
            continue
        merged = _merged(norm, scope)
        if merged is None or merged.convolution in outside:
            continue
        if all(_is_builtin(registry, n) for n in (norm, merged.convolution)):
            found[norm] = merged
    return found


def _is_builtin(registry: Registry, node: fx.Node) -> bool:
    entry = registry.for_node(node)
    return entry is not None and entry.origin == "built-in"


def _reads_output_only(norm: fx.Node) -> bool:
    """Whether the saved statistics, which a merged convolution does not give, are unused."""
    return all(user.args[1] == 0 for user in norm.users)


def _merged(norm: fx.Node, scope: Scope) -> Merged | None:
    source = norm.args[0]
    if not isinstance(source, fx.Node) or source.target is not _CONVOLUTION:
        return None
    if len(source.users) > 1 or len(source.args) != 9 or source.kwargs:
        return None
    _, weight, bias, *options = _known(source.args, scope)
    transposed, groups = options[3], options[5]
    if transposed and groups != 1:
        return None
    vectors = _known(norm.args[1:5], scope)
    eps = norm.args[6]
    given = [t for t in (weight, bias, *vectors) if t is not None]
    if weight is None or not isinstance(eps, float) or not all(map(_is_float32, given)):
        return None
    scale, shift = _scale_and_shift(bias, vectors, eps)
    if not (scale.isfinite().all() and shift.isfinite().all()):
        return None
    shape = [1] * weight.dim()
    shape[1 if transposed else 0] = -1
    return Merged(source, norm, weight.detach() * scale.view(shape), shift)


def _known(given: Iterable[Any], scope: Scope) -> list[Any]:
    """What is held already; a node that is lowered later stays a node."""
    return [scope.nodes.get(a, a) if isinstance(a, fx.Node) else a for a in given]


def _is_float32(held: Any) -> bool:
    return isinstance(held, torch.Tensor) and held.dtype == torch.float32


def _scale_and_shift(
    bias: torch.Tensor | None, vectors: list[Any], eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the norm does to a channel; in float64 until the end, so that it is rounded once."""
    gamma, beta = (None if v is None else v.detach().double() for v in vectors[:2])
    mean, variance = (v.detach().double() for v in vectors[2:])
    scale = (variance + eps).rsqrt()
    scale = scale if gamma is None else scale * gamma
    shift = -mean if bias is None else bias.detach().double() - mean
    shift = shift * scale if beta is None else shift * scale + beta
    return scale.float(), shift.float()
