"""Load a checkpoint into a model, and convert the model to another dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from .console import nearest

if TYPE_CHECKING:
    import torch

_NESTED = ("state_dict", "model_state_dict", "model")  # keys under which trainers store weights
_PREFIX = "module."  # of nn.DataParallel
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_LISTED = 3  # names that a message lists
LoadedT = TypeVar("LoadedT", bound=Any)


def load_checkpoint(model: torch.nn.Module, path: Path) -> None:
    """Load all weights of the model from a file; reject a file of another model."""
    state = _read(path)
    if state and all(name.startswith(_PREFIX) for name in state):
        state = {name.removeprefix(_PREFIX): value for name, value in state.items()}
    expected = model.state_dict()
    missing = [name for name in expected if name not in state]
    unknown = [name for name in state if name not in expected]
    if missing or unknown:
        raise typer.BadParameter(
            f"{path} does not fit {type(model).__name__}: missing {_some(missing)}, unknown "
            f"{_some(unknown)}{nearest(unknown[0], missing) if unknown else ''}"
        )
    for name, value in expected.items():
        if tuple(value.shape) != tuple(state[name].shape):
            raise typer.BadParameter(
                f"{path}: {name} has sizes {list(state[name].shape)}, the model's has "
                f"{list(value.shape)}"
            )
    model.load_state_dict(state)


def _read(path: Path) -> dict[str, torch.Tensor]:
    import torch

    from . import tensors

    if path.suffix == ".safetensors" or not path.is_file():
        return tensors.read(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as cause:
        reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
        raise typer.BadParameter(
            f"cannot read {path}: {reason}; try  torch.save(model.state_dict(), 'weights.pt')"
        ) from cause
    for key in _NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(
        isinstance(value, torch.Tensor) for value in found.values()
    ):
        raise typer.BadParameter(
            f"{path} contains no weights; try  torch.save(model.state_dict(), 'weights.pt')"
        )
    return dict(found)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{names[:_LISTED]}{more}" if names else "none"


def in_dtype(loaded: LoadedT, name: str) -> LoadedT:
    """Return the model and its float inputs in a dtype; an empty name changes nothing."""
    if not name:
        return loaded
    import torch

    from ..torch_compat import pytree

    full = _SHORT.get(name, name)
    if full not in _FLOATS:
        raise typer.BadParameter(
            f"--dtype {name}: the dtypes are {', '.join(_FLOATS[:3])}{nearest(name, _FLOATS[:3])}"
        )
    dtype = getattr(torch, full)

    def cast(leaf: Any) -> Any:
        is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(dtype) if is_float else leaf

    return replace(
        loaded,
        model_or_exported=loaded.model_or_exported.to(dtype),
        args=pytree.tree_map(cast, loaded.args),
        kwargs=pytree.tree_map(cast, loaded.kwargs),
    )
