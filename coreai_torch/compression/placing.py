"""A compressed layer in the place of the weight that it gives back."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize

from .modules import wrap_for_parametrization


def put(module: nn.Module, attribute: str, layer: nn.Module) -> None:
    """The layer in the weight's place; the weight is let go."""
    layer.__class__ = _parametrization(type(layer))
    parametrize.register_parametrization(module, attribute, layer, unsafe=True)
    held = module.parametrizations[attribute]
    held.original = nn.Parameter(torch.empty(0), requires_grad=False)


def _parametrization(cls: type[nn.Module]) -> type[nn.Module]:
    """A layer that is put in several places is made into a parametrization once."""
    if cls.__name__.endswith("Parametrization"):
        return cls
    made: type[nn.Module] = wrap_for_parametrization(cls)  # type: ignore[arg-type]
    return made
