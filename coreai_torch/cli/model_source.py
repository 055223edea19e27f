"""From what was typed to a model: an exported program, or a factory and example inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer

from . import input_spec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Loaded:
    """A model or an exported program, and what to call it with."""

    model_or_exported: Any
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None
    dynamic_shapes: Any = None
    kernels: tuple[Any, ...] = ()  # Metal kernels that the factory's module or the model holds

    def exported(self) -> torch.export.ExportedProgram:
        """The program, exported now if it is not yet, and decomposed."""
        import torch

        from ..capture.exporting import decomposed, exported
        from ..converter import get_decomp_table

        program = self.model_or_exported
        if isinstance(program, torch.nn.Module):
            program = exported(program, self.args, self.kwargs, self.dynamic_shapes)
        return decomposed(program, get_decomp_table())


def load(source: str, inputs: Sequence[str]) -> Loaded:
    """The model that `source` names, ready to be converted."""
    path, _, factory = source.rpartition(":")
    if source.endswith(".pt2"):
        return _exported(Path(source), inputs)
    if not path:
        raise typer.BadParameter(
            f"{source!r} is neither a .pt2 nor module:factory; "
            'try  models.py:net --input "x=f32[1,3,224,224]"'
        )
    import torch

    torch.manual_seed(0)  # so that untrained weights are the same for `convert` and for `verify`
    module = _module(path)
    made = _called(module, path, factory)
    model, *given = made if isinstance(made, tuple) else (made,)
    if not isinstance(model, torch.nn.Module):
        raise typer.BadParameter(
            f"{source} gave a {type(model).__name__}; a factory returns an nn.Module, "
            "or a tuple of one with its args and kwargs"
        )
    model.eval()
    if given and not inputs:
        loaded = Loaded(model, tuple(given[0]), dict(given[1]) if len(given) > 1 else None)
    else:
        loaded = _bound(model, inputs)
    return replace(loaded, kernels=_kernels(module, model))


def _kernels(module: ModuleType, model: torch.nn.Module) -> tuple[Any, ...]:
    from ..kernels import TorchMetalKernel

    held = [*vars(module).values(), *(v for m in model.modules() for v in vars(m).values())]
    return tuple(dict.fromkeys(v for v in held if isinstance(v, TorchMetalKernel)))


def _exported(path: Path, inputs: Sequence[str]) -> Loaded:
    if inputs:
        raise typer.BadParameter("an exported program brings its inputs; --input is for factories")
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    import torch

    from .. import converter  # noqa: F401  defines the ops that a saved program may hold

    return Loaded(torch.export.load(path))


def _called(module: ModuleType, path: str, factory: str) -> Any:
    made = getattr(module, factory, None)
    if made is None:
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise typer.BadParameter(f"{path} has no {factory!r}; it has {names}")
    return made() if callable(made) else made


def module_at(path: str) -> ModuleType:
    """A module that the model may have come from: its classes are those of the model then."""
    if path.endswith(".py"):
        held = sys.modules.get(Path(path).stem)
        if held is not None and Path(held.__file__ or "").absolute() == Path(path).absolute():
            return held
    return _module(path)


def _module(path: str) -> ModuleType:
    if not path.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as missing:
            raise typer.BadParameter(f"no module {missing.name!r} can be imported") from missing
    file = Path(path)
    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}")
    sys.path.insert(0, str(file.parent.absolute()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _bound(model: torch.nn.Module, inputs: Sequence[str]) -> Loaded:
    """Named inputs in the places that `forward` has for them."""
    specs = [input_spec.parse(text) for text in inputs]
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(**{s.name: s.tensor() for s in specs})
    except TypeError as error:
        raise typer.BadParameter(
            f"{type(model).__name__}.forward{signature}: {error}; give each with --input"
        ) from error
    shapes = {s.name: s.dynamic() for s in specs}
    dynamic = shapes if any(shapes.values()) else None
    return Loaded(model, bound.args, bound.kwargs, dynamic)
