"""Replace a weight by a compressed layer that computes it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize

from .modules import wrap_for_parametrization


def put(module: nn.Module, attribute: str, layer: nn.Module) -> None:
    """Register the layer as the weight's parametrization and free the weight."""
    layer.__class__ = _parametrization(type(layer))
    parametrize.register_parametrization(module, attribute, layer, unsafe=True)
    parametrizations = module.parametrizations[attribute]
    parametrizations.original = nn.Parameter(torch.empty(0), requires_grad=False)


def _parametrization(cls: type[nn.Module]) -> type[nn.Module]:
    """Return the parametrization class; a tied layer may already be one."""
    if cls.__name__.endswith("Parametrization"):
        return cls
    wrapped: type[nn.Module] = wrap_for_parametrization(cls)  # type: ignore[arg-type]
    return wrapped
