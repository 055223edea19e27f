"""Read calibration data for a model from a file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from . import tensors
from .console import nearest

if TYPE_CHECKING:
    import torch

    from .model_source import Loaded


def read_samples(path: Path, loaded: Loaded) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the calls that a file describes: an array per input, with a sample per first index.

    An array with the rank of the example input is one sample.
    """
    arrays = tensors.read(path)
    bound = _bound(loaded)
    examples = {n: v for n, v in bound.arguments.items() if hasattr(v, "dim")}
    if len(arrays) == 1 and len(examples) == 1:
        arrays = dict(zip(examples, arrays.values(), strict=True))
    if unknown := [name for name in arrays if name not in examples]:
        raise typer.BadParameter(
            f"{path} has an array {unknown[0]!r}, but the model has the inputs {list(examples)}"
            f"{nearest(unknown[0], examples)}"
        )
    if missing := [name for name in examples if name not in arrays]:
        raise typer.BadParameter(f"{path} has no array for the input {missing[0]!r}")
    listed = {name: _samples(path, name, arrays[name], x) for name, x in examples.items()}
    counts = {name: len(found) for name, found in listed.items()}
    if len(set(counts.values())) != 1:
        raise typer.BadParameter(f"{path} has different numbers of samples: {counts}")
    found = []
    for values in zip(*listed.values(), strict=True):
        bound.arguments.update(zip(listed, values, strict=True))
        found.append((bound.args, dict(bound.kwargs)))
    return found


def _bound(loaded: Loaded) -> inspect.BoundArguments:
    signature = inspect.signature(loaded.model_or_exported.forward)
    return signature.bind(*(loaded.args or ()), **(loaded.kwargs or {}))


def _samples(path: Path, name: str, array: torch.Tensor, example: torch.Tensor) -> list[Any]:
    array = array.to(example.dtype)
    if array.dim() == example.dim():
        return [array]
    if array.dim() == example.dim() + 1:
        return list(array)
    raise typer.BadParameter(
        f"{path}: {name!r} has the shape {list(array.shape)}; try  [samples, *"
        f"{list(example.shape)}]"
    )
