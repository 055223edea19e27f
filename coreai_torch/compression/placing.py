"""Replace a weight by a compressed layer that computes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from .modules import wrap_for_parametrization


def put(module: nn.Module, attribute: str, layer: nn.Module) -> None:
    """Register the layer as the weight's parametrization and free the weight.

    Both can be pickled, as `torch.save(model, path)` does; torch rejects parametrized modules.
    """
    layer.__class__ = _parametrization(type(layer))
    parametrize.register_parametrization(module, attribute, layer, unsafe=True)
    parametrizations = module.parametrizations[attribute]
    parametrizations.original = nn.Parameter(torch.empty(0), requires_grad=False)
    created: Any = type(module)  # a class that torch created for this module
    created.__reduce_ex__ = _reduce


def _parametrization(cls: type[nn.Module]) -> type[nn.Module]:
    """Return the parametrization class; a tied layer may already be one."""
    if _is_wrapped(cls):
        return cls
    wrapped: Any = wrap_for_parametrization(cls)  # type: ignore[arg-type]
    wrapped.__reduce_ex__ = _reduce
    found: type[nn.Module] = wrapped
    return found


def _is_wrapped(cls: type[nn.Module]) -> bool:
    return cls.__name__.endswith("Parametrization")


def _reduce(self: nn.Module, protocol: Any) -> Any:
    """Return how to pickle a module whose class was created at run time."""
    base = type(self)
    wrapped = _is_wrapped(base)
    if wrapped:
        base = base.__bases__[0]
    state = dict(vars(self))
    state["_modules"] = modules = dict(state["_modules"])
    lists = modules.pop("parametrizations", None) or {}
    if lists:
        base = base.__bases__[0]
    if not all(len(layers) == 1 and _is_wrapped(type(layers[0])) for layers in lists.values()):
        raise RuntimeError(
            f"{base.__name__} has parametrizations that are not compressed weights; torch cannot "
            "pickle them\n  try   save model.state_dict()"
        )
    layers = {attribute: layers[0] for attribute, layers in lists.items()}
    return _new, (base,), (state, layers, wrapped)


def _new(base: type[nn.Module]) -> Any:
    """Return an empty module whose state `_restore` sets."""
    restoring: Any = type(base.__name__, (base,), {"__setstate__": _restore})
    return restoring.__new__(restoring)


def _restore(self: Any, given: tuple[dict[str, Any], dict[str, nn.Module], bool]) -> None:
    state, layers, wrapped = given
    self.__class__ = type(self).__bases__[0]
    self.__setstate__(state)
    for attribute, layer in layers.items():
        self.register_parameter(attribute, nn.Parameter(torch.empty(0), requires_grad=False))
        put(self, attribute, layer)
    if wrapped:
        self.__class__ = _parametrization(type(self))
