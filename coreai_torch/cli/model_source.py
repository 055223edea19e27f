"""From what was typed to a model: an exported program, or a factory and example inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer

from . import input_spec

if TYPE_CHECKING:
    import torch

    from ..converter import TorchConverter


@dataclass(frozen=True)
class Loaded:
    """A model or an exported program, and what to call it with."""

    model_or_exported: Any
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None
    dynamic_shapes: Any = None
    kernels: tuple[Any, ...] = ()  # Metal kernels that the factory's module or the model holds

    def capture(self, converter: TorchConverter) -> torch.export.ExportedProgram:
        """Return the decomposed program."""
        from ..capture.prepare import prepare
        from ..converter import capture_rules

        given = (self.model_or_exported, self.args, self.kwargs, self.dynamic_shapes)
        return prepare(*given, rules=capture_rules(converter)).program


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
    loaded = _made(source, _called(module, path, factory))
    if inputs or loaded.args is None:
        loaded = _bound(loaded.model_or_exported, inputs)
    return replace(loaded, kernels=_kernels(module, loaded.model_or_exported))


def _made(source: str, made: Any) -> Loaded:
    """What a factory gave, told apart."""
    import torch

    model, *given = made if isinstance(made, tuple) and made else (made,)
    if not isinstance(model, torch.nn.Module):
        raise typer.BadParameter(
            f"{source} gave a {type(model).__name__}; a factory returns an nn.Module, "
            "or a tuple of one with its args and kwargs"
        )
    kinds: list[tuple[type, ...]] = [(tuple, list), (dict,)]
    if len(given) > 2 or not all(map(isinstance, given, kinds)):
        shown = ", ".join(type(part).__name__ for part in given)
        raise typer.BadParameter(
            f"{source} gave a model with {shown}; behind the model come a tuple of its args "
            "and a dictionary of its kwargs, as in  return model, (x,), {'scale': s}"
        )
    model.eval()
    return Loaded(model, *(kind(part) for kind, part in zip((tuple, dict), given, strict=False)))


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

    try:
        return Loaded(torch.export.load(path))
    except Exception as cause:
        raise typer.BadParameter(
            f"{path} holds no exported program that this torch can read: {_first_line(cause)}; "
            "try  torch.export.save(torch.export.export(model, args), 'model.pt2')"
        ) from cause


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _called(module: ModuleType, path: str, factory: str) -> Any:
    import torch

    made = getattr(module, factory, None)
    if made is None:
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise typer.BadParameter(f"{path} has no {factory!r}; it has {names}")
    if isinstance(made, torch.nn.Module) or not callable(made):
        return made
    try:
        inspect.signature(made).bind()
    except TypeError as error:
        raise typer.BadParameter(
            f"{path}:{factory} is called without arguments, but it is {factory}"
            f"{inspect.signature(made)}: {error}; write a function that calls it with them"
        ) from error
    except ValueError:  # builtins need not have a signature
        pass
    with _users_code(f"{path}:{factory}"):
        return made()


@contextmanager
def _users_code(what: str) -> Iterator[None]:
    """What the user's own code raises is told with its line, and is no bug of ours."""
    from ..errors import ModelCodeError

    try:
        yield
    except (Exception, SystemExit) as cause:
        frames = traceback.extract_tb(cause.__traceback__)
        own = [f for f in frames if f.filename != __file__ and "importlib" not in f.filename]
        at = f'\n  at    File "{own[-1].filename}", line {own[-1].lineno}' if own else ""
        left = isinstance(cause, SystemExit)
        told = f"called sys.exit({cause})" if left else f"raised {type(cause).__name__}: {cause}"
        raise ModelCodeError(
            f"{what} {told}{at}\n  try   the same in Python: it must return a model there first"
        ) from cause


def module_at(path: str) -> ModuleType:
    """A module that the model may have come from: its classes are those of the model then."""
    if path.endswith(".py"):
        held = sys.modules.get(Path(path).stem)
        if held is not None and Path(held.__file__ or "").absolute() == Path(path).absolute():
            return held
    return _module(path)


def _module(path: str) -> ModuleType:
    if not path.endswith(".py"):
        return _imported(path)
    file = Path(path)
    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}")
    sys.path.insert(0, str(file.parent.absolute()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    with _users_code(path):
        spec.loader.exec_module(module)
    return module


def _imported(path: str) -> ModuleType:
    from ..errors import ModelCodeError

    sys.path.insert(0, str(Path.cwd()))
    try:
        with _users_code(path):
            return importlib.import_module(path)
    except ModelCodeError as error:
        missing = getattr(error.__cause__, "name", None)
        if isinstance(error.__cause__, ModuleNotFoundError) and f"{path}.".startswith(
            f"{missing}."
        ):
            raise typer.BadParameter(f"no module {missing!r} can be imported") from error
        raise


def _bound(model: torch.nn.Module, inputs: Sequence[str]) -> Loaded:
    """Named inputs in the places that `forward` has for them."""
    specs = [input_spec.parse(text) for text in inputs]
    if twice := [s.name for i, s in enumerate(specs) if s.name in {o.name for o in specs[:i]}]:
        raise typer.BadParameter(f"the input {twice[0]!r} is given more than once")
    given = {s.name: s.tensor() for s in specs}
    try:
        signature = inspect.signature(model.forward)
    except ValueError:  # of a traced module, which tells no names
        return Loaded(model, tuple(given.values()))
    try:
        bound = signature.bind(**given)
    except TypeError as error:
        raise typer.BadParameter(
            f"{type(model).__name__}.forward{signature}: {error}; give each with --input"
        ) from error
    shapes = {s.name: s.dynamic() for s in specs}
    dynamic = shapes if any(shapes.values()) else None
    return Loaded(model, bound.args, bound.kwargs, dynamic)
