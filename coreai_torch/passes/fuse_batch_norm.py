"""Fuse batch norms into the convolution before them.

The compiler's rewrite does this with its slow constant folder: that is most of the time a ResNet-50
takes to optimize (coreai-core 1.0.0b2). It also rounds to the dtype of the weights at each step,
so only float32 is fused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..torch_compat import aten
from .graph import FusedConvolution, PassGraph

_CONVOLUTION = aten.convolution.default
_NORM = aten._native_batch_norm_legit_no_training.default


def fuse_batch_norm(graph: PassGraph) -> PassGraph:
    """Record the batch norms that can be fused, and drop the calls of their convolutions."""
    norms = [node for node in graph.calls if node.target is _NORM]
    if not norms:
        return graph
    allowed = {n for n in graph.calls if n not in graph.region_at and not graph.is_custom(n)}
    fused = {
        norm: found
        for norm in norms
        if norm in allowed
        and (found := _fused(norm, graph.constants)) is not None
        and found.convolution in allowed
    }
    dropped = {pair.convolution for pair in fused.values()}
    calls = [node for node in graph.calls if node not in dropped]
    return replace(graph, calls=calls, fused=fused)


def _fused(norm: fx.Node, constants: Mapping[fx.Node, Any]) -> FusedConvolution | None:
    source = norm.args[0]
    if not isinstance(source, fx.Node) or source.target is not _CONVOLUTION:
        return None
    if len(source.users) > 1 or len(source.args) != 9 or source.kwargs:
        return None
    if not _reads_output_only(norm):
        return None
    _, weight, bias, *options = _known(source.args, constants)
    transposed, groups = options[3], options[5]
    if transposed and groups != 1:
        return None
    vectors = _known(norm.args[1:5], constants)
    eps = norm.args[6]
    given = [t for t in (weight, bias, *vectors) if t is not None]
    if weight is None or not isinstance(eps, float) or not all(map(_is_float32, given)):
        return None
    scale, shift = _scale_and_shift(bias, vectors, eps)
    if not (scale.isfinite().all() and shift.isfinite().all()):
        return None
    shape = [1] * weight.dim()
    shape[1 if transposed else 0] = -1
    return FusedConvolution(source, weight.detach() * scale.view(shape), shift)


def _reads_output_only(norm: fx.Node) -> bool:
    """Whether the saved statistics, which a fused convolution does not compute, are unused."""
    return all(user.args[1] == 0 for user in norm.users)


def _known(given: Iterable[Any], constants: Mapping[fx.Node, Any]) -> list[Any]:
    """Replace nodes by their constants; other nodes stay nodes."""
    return [constants.get(a, a) if isinstance(a, fx.Node) else a for a in given]


def _is_float32(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _scale_and_shift(
    bias: torch.Tensor | None, vectors: list[Any], eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factor and summand of each channel, computed in float64 and rounded once."""
    gamma, beta = (None if v is None else v.detach().double() for v in vectors[:2])
    mean, variance = (v.detach().double() for v in vectors[2:])
    scale = (variance + eps).rsqrt()
    scale = scale if gamma is None else scale * gamma
    shift = -mean if bias is None else bias.detach().double() - mean
    shift = shift * scale if beta is None else shift * scale + beta
    return scale.float(), shift.float()
