"""Fuse batch norms, and products with a number for each channel, into the layer before them.

The compiler's rewrite does this with its slow constant folder: that is most of the time a ResNet-50
takes to optimize (coreai-core 1.0.0b2). It also rounds to the dtype of the weights at each step,
and leaves the product of two float16 constants in the program. Here it is rounded once, to the
dtype of the layer.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from ..ir import dialect as cai
from ..torch_compat import aten
from .pass_graph import Lower, PassGraph, Values
from .recognize.pattern import FLOATS

_CONVOLUTION, _LINEAR = aten.convolution.default, aten.linear.default
_NORM = aten._native_batch_norm_legit_no_training.default
_PRODUCT, _VIEW, _CLONE = aten.mul.Tensor, aten.view.default, aten.clone.default


def fuse_batch_norm(graph: PassGraph) -> PassGraph:
    """Record the calls that can be fused, and drop those of their layers."""
    return _Fusion(graph).result()


@dataclass(frozen=True)
class FusedLayer:
    """A convolution or linear layer, and the calls that scale its channels, as one layer."""

    layer: fx.Node
    weight: torch.Tensor
    bias: torch.Tensor | None

    def __str__(self) -> str:
        return f"fused with %{self.layer.name}"

    @property
    def reads(self) -> list[fx.Node]:
        """The operands of the layer."""
        return list(self.layer.all_input_nodes)

    def emit(self, node: fx.Node, values: Values, lower: Lower) -> Any:
        """Lower the layer; the statistics of a norm, which nothing reads, are None."""
        source, old_weight = self.reads[:2]
        graph = fx.Graph()
        names = ("x", "weight", "bias")[: 2 if self.bias is None else 3]
        x, weight, *bias = (graph.placeholder(name) for name in names)
        args = (x, weight, *(bias or [None]), *self.layer.args[3:])
        layer = graph.call_function(self.layer.target, args)
        layer.meta, x.meta = self.layer.meta, source.meta
        given = {x: values.nodes[source], weight: self.weight, **dict.fromkeys(bias, self.bias)}
        name = values.names.get(old_weight, "weight")
        result = lower(layer, given, {weight: name, **dict.fromkeys(bias, f"{name}.merged_bias")})
        promised = node.meta["val"]
        if not isinstance(promised, list | tuple):
            return result
        if promised[0].dim() != result.type.rank:  # a view before the norm
            result = cai.reshape(result, list(promised[0].shape))
        return [result, None, None]


@dataclass(frozen=True)
class _Scaled:
    """A layer whose channels are scaled and shifted by the calls behind it."""

    layer: fx.Node
    scale: torch.Tensor  # float64, one number for each channel
    shift: torch.Tensor  # with the bias of the layer
    replaced: tuple[fx.Node, ...]  # the layer and the calls up to here

    @property
    def is_linear(self) -> bool:
        return self.layer.target is _LINEAR

    def then(self, scale: torch.Tensor, shift: torch.Tensor | float, mean: Any = 0.0) -> _Scaled:
        moved = (self.shift - mean) * scale + shift
        return replace(self, scale=self.scale * scale, shift=moved)

    def behind(self, *calls: fx.Node) -> _Scaled:
        return replace(self, replaced=(*self.replaced, *calls))


class _Fusion:
    def __init__(self, graph: PassGraph) -> None:
        self.graph, self.constants, self.calls = graph, graph.constants, set(graph.calls)
        self.scaled: dict[fx.Node, _Scaled] = {}
        self.fused: dict[fx.Node, FusedLayer] = {}

    def result(self) -> PassGraph:
        for call in self.graph.calls:
            if call.target is _NORM or call.target is _PRODUCT:
                self._add(call)
        if not self.fused:
            return self.graph
        replaced = {node for scaled in self.scaled.values() for node in scaled.replaced}
        calls = [node for node in self.graph.calls if node not in replaced]
        fused = {call: layer for call, layer in self.fused.items() if call not in replaced}
        return replace(self.graph, calls=calls, replaced={**self.graph.replaced, **fused})

    def _add(self, call: fx.Node) -> None:
        scaled = self._normalized(call) if call.target is _NORM else self._multiplied(call)
        if scaled is None or not all(map(self._may_fuse, (call, *scaled.replaced))):
            return
        layer = self._layer(scaled)
        if layer is not None and _result(call).dtype == layer.weight.dtype:
            self.scaled[call], self.fused[call] = scaled, layer

    def _may_fuse(self, node: fx.Node) -> bool:
        """Whether a node is lowered here, by a rule of this package."""
        at_hand = node in self.calls and node not in self.graph.region_at
        return at_hand and not self.graph.is_custom(node)

    def _normalized(self, norm: fx.Node) -> _Scaled | None:
        if not all(user.args[1] == 0 for user in norm.users):  # reads the saved statistics
            return None
        source, eps = self._source(norm.args[0]), norm.args[6]
        vectors = _known(norm.args[1:5], self.constants)
        given = [v for v in vectors if v is not None]
        if source is None or not isinstance(eps, float) or not all(map(_is_float, given)):
            return None
        if source.is_linear and _result(norm).dim() != 2:
            return None
        gamma, beta, mean, variance = (None if v is None else v.detach().double() for v in vectors)
        assert variance is not None
        scale = (variance + eps).rsqrt()
        scale = scale if gamma is None else scale * gamma
        return source.then(scale, 0.0 if beta is None else beta, mean)

    def _multiplied(self, product: fx.Node) -> _Scaled | None:
        for given, other in (product.args, product.args[::-1]):
            (factor,) = _known([other], self.constants)
            if not _is_float(factor) or factor.numel() < 2 or given in self.constants:
                continue
            source, rank = self._source(given), _result(product).dim()
            if source is None or source.is_linear:
                return None  # the large weights of a linear layer are not copied for a product
            shape = [1, len(source.scale), *[1] * (rank - 2)]
            if [1] * (rank - factor.dim()) + list(factor.shape) != shape:
                return None
            return source.then(factor.detach().double().flatten(), 0.0)
        return None

    def _source(self, node: Any) -> _Scaled | None:
        """Return the layer that only a call reads, with what was fused into it before."""
        if not isinstance(node, fx.Node) or len(node.users) > 1:
            return None
        if node.target is operator.getitem:
            inner: Any = node.args[0]
            found = self.scaled.get(inner)
            return None if found is None or len(inner.users) > 1 else found.behind(inner, node)
        if node in self.scaled:
            return self.scaled[node].behind(node)
        if node.target is _CLONE:  # a dropout of the model
            found = self._source(node.args[0])
            return None if found is None else found.behind(node)
        if node.target is _VIEW:
            return self._viewed(node)
        return self._unscaled(node) if node.target in (_CONVOLUTION, _LINEAR) else None

    def _viewed(self, view: fx.Node) -> _Scaled | None:
        """Return the linear layer before a view that keeps its channels."""
        found, given = self._source(view.args[0]), _result(view.args[0])
        sizes = [*_result(view).shape, *given.shape]
        if found is None or not found.is_linear or not all(isinstance(s, int) for s in sizes):
            return None
        return found.behind(view) if _result(view).shape[-1:] == given.shape[-1:] else None

    def _unscaled(self, layer: fx.Node) -> _Scaled | None:
        weight, bias = self._parameters(layer)
        if layer.kwargs or not _is_float(weight) or not (bias is None or _is_float(bias)):
            return None
        if layer.target is _CONVOLUTION and (len(layer.args) != 9 or _is_grouped(layer)):
            return None
        count = weight.shape[_channel(layer)]
        zeros = torch.zeros(count, dtype=torch.float64)
        shift = zeros if bias is None else bias.detach().double()
        return _Scaled(layer, zeros + 1, shift, (layer,))

    def _parameters(self, layer: fx.Node) -> list[Any]:
        found = _known(layer.args[1:3], self.constants)
        return found if len(found) == 2 else [*found, None]

    def _layer(self, scaled: _Scaled) -> FusedLayer | None:
        """Return the layer with its new weight, unless the dtype of that cannot hold it."""
        weight, bias = self._parameters(scaled.layer)
        shape = [1] * weight.dim()
        shape[_channel(scaled.layer)] = -1
        exact = weight.detach().float() * scaled.scale.float().view(shape)
        product, summand = exact.to(weight.dtype), scaled.shift.float().to(weight.dtype)
        if not (product.isfinite().all() and summand.isfinite().all()) or _lost(product, exact):
            return None
        needs_bias = bias is not None or bool(scaled.shift.any())
        return FusedLayer(scaled.layer, product, summand if needs_bias else None)


def _is_grouped(layer: fx.Node) -> bool:
    """Whether a transposed convolution has groups: its weight has no axis of all channels."""
    return bool(layer.args[6]) and layer.args[8] != 1


def _channel(layer: fx.Node) -> int:
    """Return the axis of a weight that has its output channels."""
    return 1 if layer.target is _CONVOLUTION and layer.args[6] else 0


def _result(node: Any) -> torch.Tensor:
    value = node.meta["val"]
    found: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
    return found


def _lost(rounded: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether rounded weights are off by more than their dtype has digits for the largest one.

    Float16 has few digits below 6e-5: weights of up to 3e-7 would be off by a tenth.
    """
    if not exact.numel():
        return False
    limit = exact.abs().max() * torch.finfo(rounded.dtype).eps
    return bool((rounded.float() - exact).abs().max() > limit)


def _known(given: Iterable[Any], constants: Mapping[fx.Node, Any]) -> list[Any]:
    """Replace nodes by their constants; other nodes stay nodes."""
    return [constants.get(a, a) if isinstance(a, fx.Node) else a for a in given]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in FLOATS
