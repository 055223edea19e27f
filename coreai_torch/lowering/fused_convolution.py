"""Lower a batch norm that was fused into the convolution before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from ..passes.graph import FusedConvolution
from .binding import Call
from .cases import Case
from .entry import BUILT_IN, Entry, LowerSubgraph
from .scope import Scope


@dataclass(frozen=True)
class FusedConvolutionLowering:
    """Lowers a batch norm as one convolution with the fused weight and bias."""

    convolution: Entry
    fused: FusedConvolution
    origin: str = BUILT_IN
    cases: Sequence[Case] = ()

    @property
    def target(self) -> Any:
        """The op that is emitted."""
        return self.fused.convolution.target

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> list[Any]:
        """Lower the convolution; the statistics, which nothing reads, are None."""
        old, scope = self.fused.convolution, call.scope
        source, old_weight = old.all_input_nodes[:2]
        graph = fx.Graph()
        x, weight, bias = (graph.placeholder(name) for name in ("x", "weight", "bias"))
        node = graph.call_function(self.target, (x, weight, bias, *old.args[3:]))
        node.meta, x.meta = old.meta, source.meta
        name = scope.names.get(old_weight, "weight")
        inner = Scope({weight: name, bias: f"{name}.merged_bias"})
        inner.record(x, scope.nodes[source])
        inner.record(weight, self.fused.weight)
        inner.record(bias, self.fused.bias)
        return [self.convolution(Call(node, inner), lower_subgraph), None, None]
