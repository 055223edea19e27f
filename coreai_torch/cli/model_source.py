"""Load the model that a command names: an exported program, or a factory with example inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer

from . import input_spec, weights
from .console import nearest

if TYPE_CHECKING:
    import torch

    from ..converter import TorchConverter


_SEQUENCE = 16  # tokens of the example input of a language model


@dataclass(frozen=True)
class Loaded:
    """A model or an exported program, and its example inputs."""

    model_or_exported: Any
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None
    dynamic_shapes: Any = None
    kernels: tuple[Any, ...] = ()  # Metal kernels of the factory's module or the model

    def arguments(self, converter: TorchConverter | None = None) -> dict[str, Any]:
        """Return the arguments of `convert` besides the model, with the kernels."""
        from ..converter import TorchConverter

        chosen = TorchConverter() if converter is None else converter
        return {
            "args": self.args,
            "kwargs": self.kwargs,
            "dynamic_shapes": self.dynamic_shapes,
            "converter": chosen.register_custom_kernels(self.kernels),
        }

    def capture(self, converter: TorchConverter) -> torch.export.ExportedProgram:
        """Return the decomposed program."""
        from ..capture.prepare import prepare
        from ..converter import capture_rules

        given = (self.model_or_exported, self.args, self.kwargs, self.dynamic_shapes)
        return prepare(*given, rules=capture_rules(converter)).program


def load(
    source: str,
    inputs: Sequence[str],
    *,
    checkpoint: Path | None = None,
    dtype: str = "",
    seed: int = 0,
) -> Loaded:
    """Load the model that `source` names, with its weights and in its dtype."""
    path, _, factory = source.rpartition(":")
    if source.endswith(".pt2"):
        return _load_exported(Path(source), inputs, checkpoint, dtype)
    if not path:
        raise typer.BadParameter(
            f"{source!r} is neither a .pt2 nor module:factory; "
            'try  models.py:net --input "x=f32[1,3,224,224]"'
        )
    import torch

    torch.manual_seed(seed)  # untrained weights are then the same in `convert` and `verify`
    if path == "transformers" and not hasattr(_transformers(), factory):
        loaded, kernels = _load_pretrained(Path(factory), inputs), ()
    else:
        module = _module(path)
        loaded = _check_result(source, _call_factory(module, path, factory))
        kernels = _kernels(module, loaded.model_or_exported)
    if checkpoint is not None:
        weights.load_checkpoint(loaded.model_or_exported, checkpoint)
    if inputs or loaded.args is None:
        loaded = bind_inputs(loaded.model_or_exported, inputs)
    return replace(weights.in_dtype(loaded, dtype), kernels=kernels)


def _transformers() -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise typer.BadParameter(
            "transformers is not installed; try  pip install transformers"
        ) from error


def _load_pretrained(folder: Path, inputs: Sequence[str]) -> Loaded:
    """Load the model of a folder; without --input it gets one sequence or one image."""
    import torch

    if not (folder / "config.json").is_file():
        raise typer.BadParameter(
            f"{folder} has no config.json; try  transformers:FOLDER with a folder that "
            "save_pretrained wrote"
        )
    library = _transformers()
    with _report_user_error(f"transformers:{folder}"):
        config = library.AutoConfig.from_pretrained(folder)
        named = next(iter(config.architectures or ()), "")
        model_class = getattr(library, named, library.AutoModel)
        model = model_class.from_pretrained(folder, local_files_only=True).eval()
    model.config.use_cache = False  # its values would be outputs
    main = getattr(model, "main_input_name", "")
    if inputs or main not in ("input_ids", "pixel_values"):
        return Loaded(model)
    if main == "input_ids":
        example = torch.randint(0, config.vocab_size, (1, _SEQUENCE))
    else:
        example = torch.randn(1, config.num_channels, config.image_size, config.image_size)
    return Loaded(model, (), {main: example})


def _check_result(source: str, result: Any) -> Loaded:
    """Check the result of a factory: a model, or a tuple of a model, its args and its kwargs."""
    import torch

    model, *rest = result if isinstance(result, tuple) and result else (result,)
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        article = "an" if kind[0] in "aeiouAEIOU" else "a"
        raise typer.BadParameter(
            f"{source} returned {article} {kind}; a factory returns an nn.Module, "
            "or a tuple of a module, its args and its kwargs"
        )
    types: list[tuple[type, ...]] = [(tuple, list), (dict,)]
    if len(rest) > 2 or not all(map(isinstance, rest, types)):
        shown = ", ".join(type(part).__name__ for part in rest)
        raise typer.BadParameter(
            f"{source} returned a model and {shown}; after the model comes a tuple of its args "
            "and a dictionary of its kwargs, as in  return model, (x,), {'scale': s}"
        )
    model.eval()
    return Loaded(model, *(kind(part) for kind, part in zip((tuple, dict), rest, strict=False)))


def _kernels(module: ModuleType, model: torch.nn.Module) -> tuple[Any, ...]:
    from ..kernels import TorchMetalKernel

    values = [*vars(module).values(), *(v for m in model.modules() for v in vars(m).values())]
    return tuple(dict.fromkeys(v for v in values if isinstance(v, TorchMetalKernel)))


def _load_exported(
    path: Path, inputs: Sequence[str], checkpoint: Path | None, dtype: str
) -> Loaded:
    if inputs:
        raise typer.BadParameter("an exported program has its own inputs; --input is for factories")
    if checkpoint is not None or dtype:
        option = "--dtype" if checkpoint is None else "--checkpoint"
        raise typer.BadParameter(f"an exported program has its weights; {option} is for factories")
    if not path.is_file():
        raise typer.BadParameter(f"the file {path} does not exist")
    import torch

    from .. import converter  # noqa: F401  defines ops that a saved program may contain

    try:
        return Loaded(torch.export.load(path))
    except Exception as cause:
        raise typer.BadParameter(
            f"{path} is not an exported program that this torch can read: {_first_line(cause)}; "
            "try  torch.export.save(torch.export.export(model, args), 'model.pt2')"
        ) from cause


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _call_factory(module: ModuleType, path: str, factory: str) -> Any:
    import torch

    found = getattr(module, factory, None)
    if found is None:
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise typer.BadParameter(
            f"{path} has no {factory!r}; it has {names}{nearest(factory, names)}"
        )
    if isinstance(found, torch.nn.Module) or not callable(found):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise typer.BadParameter(
            f"{path}:{factory} is called without arguments, but its signature is {factory}"
            f"{inspect.signature(found)}: {error}; write a function that calls it with them"
        ) from error
    except ValueError:  # some builtins have no signature
        pass
    with _report_user_error(f"{path}:{factory}"):
        return found()


@contextmanager
def _report_user_error(what: str) -> Iterator[None]:
    """Raise `ModelCodeError` with the line if the user's code fails."""
    from ..errors import ModelCodeError

    try:
        yield
    except (Exception, SystemExit) as cause:
        frames = traceback.extract_tb(cause.__traceback__)
        user = [f for f in frames if f.filename != __file__ and "importlib" not in f.filename]
        at = f'\n  at    File "{user[-1].filename}", line {user[-1].lineno}' if user else ""
        exited = isinstance(cause, SystemExit)
        event = f"called sys.exit({cause})" if exited else f"raised {type(cause).__name__}: {cause}"
        raise ModelCodeError(
            f"{what} {event}{at}\n  try   call it in Python first: it must return a model there"
        ) from cause


def module_at(path: str) -> ModuleType:
    """Return the module at a path; if it is imported already, its classes stay the same."""
    if path.endswith(".py"):
        known = sys.modules.get(Path(path).stem)
        if known is not None and Path(known.__file__ or "").absolute() == Path(path).absolute():
            return known
    return _module(path)


def _module(path: str) -> ModuleType:
    if not path.endswith(".py"):
        return _import_module(path)
    file = Path(path)
    if not file.is_file():
        raise typer.BadParameter(f"the file {file} does not exist")
    sys.path.insert(0, str(file.parent.absolute()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    with _report_user_error(path):
        spec.loader.exec_module(module)
    return module


def _import_module(path: str) -> ModuleType:
    from ..errors import ModelCodeError

    sys.path.insert(0, str(Path.cwd()))
    try:
        with _report_user_error(path):
            return importlib.import_module(path)
    except ModelCodeError as error:
        missing = getattr(error.__cause__, "name", None)
        if isinstance(error.__cause__, ModuleNotFoundError) and f"{path}.".startswith(
            f"{missing}."
        ):
            raise typer.BadParameter(f"no module {missing!r} can be imported") from error
        raise


def bind_inputs(model: torch.nn.Module, inputs: Sequence[str]) -> Loaded:
    """Bind named inputs to the parameters of `forward`."""
    specs = _named([input_spec.parse(text) for text in inputs], model)
    if twice := [s.name for i, s in enumerate(specs) if s.name in {o.name for o in specs[:i]}]:
        raise typer.BadParameter(f"the input {twice[0]!r} is given more than once")
    input_spec.check_sizes(specs)
    tensors = {s.name: s.tensor() for s in specs}
    try:
        signature = inspect.signature(model.forward)
    except ValueError:  # a traced module has no names
        return Loaded(model, tuple(tensors.values()))
    _check_names(model, signature, tensors)
    try:
        bound = signature.bind(**tensors)
    except TypeError as error:
        raise typer.BadParameter(
            f"{type(model).__name__}.forward{signature}: {error}; pass each with --input"
        ) from error
    shapes = {s.name: s.dynamic() for s in specs}
    dynamic = shapes if any(shapes.values()) else None
    return Loaded(model, bound.args, bound.kwargs, dynamic)


def _named(specs: list[input_spec.InputSpec], model: torch.nn.Module) -> list[input_spec.InputSpec]:
    """Name the input of a model that takes only one."""
    if all(spec.name for spec in specs):
        return specs
    try:
        names = list(inspect.signature(model.forward).parameters)
    except ValueError:
        names = ["x"]
    if len(specs) > 1:
        raise typer.BadParameter(
            f"several inputs need names: those of {type(model).__name__}.forward are {names}; "
            f"try  --input {names[0]}=f32[1,3]"
        )
    return [replace(specs[0], name=names[0])]


def _check_names(
    model: torch.nn.Module, signature: inspect.Signature, given: Mapping[str, Any]
) -> None:
    """Reject an input that `forward` does not have; name the most similar one."""
    parameters = signature.parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            raise typer.BadParameter(
                f"{type(model).__name__}.forward has no input {name!r}; it has {list(parameters)}"
                f"{nearest(name, parameters)}"
            )
