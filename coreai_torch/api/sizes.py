"""Enumerated sizes: one entry point for each, with the same weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from ..errors import ArgumentTypeError, ConversionError
from .request import Request

Shape: TypeAlias = "Sequence[int]"
Shapes: TypeAlias = "Shape | Mapping[str, Shape]"  # of the only input, or of inputs by name
Sizes: TypeAlias = "Sequence[Shapes] | Mapping[str, Shapes]"  # names of entry points as keys

_EXAMPLE = "  try   pass sizes=[(1, 3, 224, 224), ...] or sizes=[{'x': (1, 3, 224, 224)}, ...]"


@dataclass(frozen=True)
class Variant:
    """One entry point, and what to capture for it."""

    entrypoint: str
    request: Request


def variants(request: Request, sizes: Sizes | None) -> list[Variant]:
    """Return one entry point for each enumerated size; without sizes only `main`."""
    if sizes is None:
        return [Variant("main", request)]
    _check(request, sizes)
    arguments = _arguments(request)
    found: dict[str, Variant] = {}
    for name, shapes in _named(sizes):
        by_input = shapes if isinstance(shapes, Mapping) else {_only_input(arguments): shapes}
        resized_ = _resized(arguments, by_input)
        entrypoint = name or _derived(by_input)
        if entrypoint in found:
            raise ConversionError(f"sizes has {entrypoint!r} twice\n  try   pass different sizes")
        kwargs = {key: resized_[key] for key in request.kwargs or {}}
        args = tuple(value for key, value in resized_.items() if key not in kwargs)
        found[entrypoint] = Variant(entrypoint, replace(request, args=args, kwargs=kwargs))
    return list(found.values())


def _check(request: Request, sizes: Any) -> None:
    shapes = sizes.values() if isinstance(sizes, Mapping) else sizes
    listed = isinstance(sizes, Sequence | Mapping) and not isinstance(sizes, str)
    if not listed or not sizes or not all(map(_is_shapes, shapes)):
        raise ArgumentTypeError(f"sizes is {sizes!r}, which is not a list of shapes\n{_EXAMPLE}")
    if not isinstance(request.source, torch.nn.Module):
        raise ConversionError(
            "sizes needs the model itself: an exported program has fixed sizes\n"
            "  try   call convert(model, args, sizes=[...])"
        )
    if request.dynamic_shapes is not None:
        raise ConversionError(
            "sizes cannot be combined with dynamic_shapes\n  try   pass one of them"
        )


def _is_shapes(shapes: Any) -> bool:
    each = shapes.values() if isinstance(shapes, Mapping) else [shapes]
    return all(isinstance(one, Sequence) and not isinstance(one, str) for one in each)


def _named(sizes: Sizes) -> list[tuple[str, Shapes]]:
    if isinstance(sizes, Mapping):
        return list(sizes.items())
    return [("", shapes) for shapes in sizes]


def _arguments(request: Request) -> dict[str, Any]:
    """Return the example inputs by the names of the parameters of `forward`."""
    assert isinstance(request.source, torch.nn.Module)
    try:
        signature = inspect.signature(request.source.forward)
        bound = signature.bind(*(request.args or ()), **(request.kwargs or {}))
    except (TypeError, ValueError) as cause:
        raise ConversionError(
            f"the example inputs do not fit forward: {cause}\n  try   pass args=(x, ...)"
        ) from cause
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found.update((f"{name}_{i}", each) for i, each in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def _only_input(arguments: Mapping[str, Any]) -> str:
    tensors = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    if len(tensors) != 1:
        raise ConversionError(
            f"the model has the inputs {tensors}; sizes must name them\n{_EXAMPLE}"
        )
    return tensors[0]


def _resized(arguments: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the example inputs with other sizes: rows are repeated or cut."""
    for name, shape in shapes.items():
        value = arguments.get(name)
        if not isinstance(value, torch.Tensor):
            known = [n for n, v in arguments.items() if isinstance(v, torch.Tensor)]
            raise ConversionError(
                f"sizes: no input is called {name!r}\n  try   pass one of {known}"
            )
        fits = len(shape) == value.dim() and all(type(n) is int and n > 0 for n in shape)
        if not fits:
            raise ConversionError(
                f"sizes: {list(shape)} does not fit {name!r} of rank {value.dim()}\n"
                f"  try   pass {value.dim()} numbers greater than 0"
            )
    return {
        name: _with_shape(value, shapes[name]) if name in shapes else value
        for name, value in arguments.items()
    }


def _with_shape(value: torch.Tensor, shape: Shape) -> torch.Tensor:
    for axis, size in enumerate(shape):
        if value.shape[axis] == 0:
            raise ConversionError("sizes: an example input is empty\n  try   pass a larger one")
        if size != value.shape[axis]:
            value = value.index_select(axis, torch.arange(size) % value.shape[axis])
    return value


def _derived(shapes: Mapping[str, Shape]) -> str:
    """Return `main_1x3x224x224`."""
    return "_".join(["main", *("x".join(map(str, shape)) for shape in shapes.values())])
