"""`coreai-torch run`: run an asset on files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Json, answer, check_function, nearest, table

if TYPE_CHECKING:
    import torch

    from ..interpreter import Function
    from ..surgery import Parts

HELP = """Run an asset on tensors, images or audio from files.

\b
  coreai-torch run net.aimodel inputs.npz -o outputs.npz
  coreai-torch run net.aimodel photo.png -o scores.safetensors
  coreai-torch run style.aimodel x=photo.png -o y=painted.png
  coreai-torch run speech.aimodel samples=hello.wav ids=tokens.npz -o text.npz

Tensors in a file with several tensors are matched with inputs by name; a model with one input needs
no name. Images become floats between
0 and 1 in the layout of the input, or the pixels of an input that was converted as an image: its
layout and its channel order (RGB, BGR, RGBA, BGRA or GRAY) are read from the asset. The alpha of a
picture is dropped, as PIL drops it, unless the input takes it. Audio becomes floats between -1 and
1. States start as zeros and
are saved with the outputs. The program runs in a separate process.
"""


class RunBy(StrEnum):
    """The engine that runs the asset."""

    RUNTIME = "runtime"
    TORCH = "torch"


def run(
    asset: Annotated[
        Path,
        typer.Argument(help="An .aimodel, or the folder of a split model.", show_default=False),
    ],
    given: Annotated[
        list[str] | None, typer.Argument(help="name=file, or a file of named tensors.")
    ] = None,
    output: Annotated[
        list[str] | None, typer.Option("--output", "-o", help="file, or name=file for one output.")
    ] = None,
    function: Annotated[str, typer.Option(help="The function to call.")] = "main",
    engine: Annotated[RunBy, typer.Option(help="The engine that runs it.")] = RunBy.RUNTIME,
    any_size: Annotated[
        bool, typer.Option("--any-size", help="Only warn about sizes outside the stored range.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one call."""
    from .tensors import check_writable

    check_writable([text.rpartition("=")[2] for text in output or ()])
    if (asset / "manifest.json").is_file():
        results = _run_parts(asset, given or [], engine)
    else:
        results = _run_asset(asset, given or [], function, engine, any_size)
    written = _write(results, output or [])
    outputs = {n: {"dtype": _dtype(v), "shape": list(v.shape)} for n, v in results.items()}
    lines = table(
        [(n, f"{t['dtype']}{t['shape']}", _shown(results[n])) for n, t in outputs.items()], ""
    )
    lines += [f"written to {file}" for file in written]
    answer({"outputs": outputs, "written": written}, lines, as_json=as_json, ok=True)


def _run_asset(
    asset: Path, given: list[str], function: str, engine: RunBy, any_size: bool
) -> dict[str, torch.Tensor]:
    from ..interpreter import to_torch
    from ..numerics.arrays import array, tensor
    from ..verification.engines import Engine, start
    from ..verification.isolation import ProgramFile

    functions = to_torch(asset).functions
    check_function(asset, functions, function)
    signature = functions[function]
    inputs = _inputs(signature, given, _images(asset))
    _check_sizes(asset, function, inputs, any_size)
    states = {name: _zeros(name, type_) for name, type_ in signature.states.items()}
    runner = start(
        Engine(engine),
        ProgramFile(asset=asset.absolute()),
        entrypoint=function,
        optimize=False,
        timeout=600.0,
    )
    try:
        raw, final_states = runner.call(
            {n: array(v) for n, v in inputs.items()}, {n: array(v) for n, v in states.items()}
        )
    finally:
        runner.close()
    return {n: tensor(v) for n, v in {**raw, **final_states}.items()}


def _check_sizes(
    asset: Path, function: str, inputs: Mapping[str, torch.Tensor], any_size: bool
) -> None:
    """Reject inputs outside the sizes that the program was converted for, or warn about them."""
    from ..asset.port_sizes import PortSizes
    from ..errors import ConversionError

    sizes = PortSizes.of(asset, function)
    for name, value in inputs.items():
        try:
            sizes.check(name, value.shape)
        except ConversionError as error:
            if not any_size:
                raise typer.BadParameter(f"{error}, or pass --any-size") from None
            warnings.warn(str(error).partition("\n")[0], stacklevel=2)


def _run_parts(folder: Path, given: list[str], engine: RunBy) -> dict[str, torch.Tensor]:
    from .. import load_parts

    images = {n: v for part in folder.glob("*.aimodel") for n, v in _images(part).items()}
    with load_parts(folder, engine=str(engine)) as parts:
        for name, type_ in parts.states.items():
            parts.set_state(name, _zeros(name, type_))
        outputs = parts(_inputs(parts, given, images))
        return {**outputs, **{name: parts.state(name) for name in parts.states}}


def _images(asset: Path) -> dict[str, dict[str, Any]]:
    """Return the arguments of the image inputs that an asset stores."""
    from ..asset.metadata import images_of, read_metadata

    return images_of(read_metadata(asset))


def _inputs(
    signature: Function | Parts, given: list[str], images: Mapping[str, Mapping[str, Any]]
) -> dict[str, torch.Tensor]:
    from .tensors import fitted, named, read

    found: dict[str, torch.Tensor] = {}
    for text in given:
        name, is_named, file = text.rpartition("=")
        path = Path(file)
        tensors = read(path, with_alpha=True)
        if is_named and name not in signature.inputs:
            near = nearest(name, signature.inputs)
            known = list(signature.inputs)
            raise typer.BadParameter(f"no input {name!r}; the inputs are {known}{near}")
        single = {name: named(tensors, name, path)} if is_named else _unnamed(tensors, signature)
        for port, value in single.items():
            if port in signature.inputs:
                type_ = signature.inputs[port]
                found[port] = fitted(value, path, type_.dtype, type_.shape, images.get(port))
    missing = [n for n in signature.inputs if n not in found]
    if missing:
        raise typer.BadParameter(f"missing inputs {missing}; try  {missing[0]}=file.npz")
    return found


def _unnamed(
    tensors: dict[str, torch.Tensor], signature: Function | Parts
) -> Mapping[str, torch.Tensor]:
    """Give the only tensor of a file to the only input of a function, whatever its name."""
    if len(tensors) == 1 and len(signature.inputs) == 1:
        return dict(zip(signature.inputs, tensors.values(), strict=True))
    return tensors


def _zeros(name: str, type_: Any) -> torch.Tensor:
    import torch

    if any(size < 0 for size in type_.shape):
        raise typer.BadParameter(f"the state {name!r} is {type_}: its sizes are dynamic")
    return torch.zeros(type_.shape, dtype=type_.dtype)


def _write(results: Mapping[str, torch.Tensor], outputs: list[str]) -> list[str]:
    from .tensors import write

    written = []
    for text in outputs:
        name, named, file = text.rpartition("=")
        if named and name not in results:
            raise typer.BadParameter(f"no output {name!r}; the outputs are {list(results)}")
        write(Path(file), {name: results[name]} if named else results)
        written.append(file)
    return written


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _shown(value: torch.Tensor) -> str:
    """Format the first few elements."""
    first = value.flatten()[:4].tolist()
    more = " ..." if value.numel() > 4 else ""
    return " ".join(f"{v:.5g}" if isinstance(v, float) else str(v) for v in first) + more
