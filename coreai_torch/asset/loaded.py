"""Call a program on the runtime of this machine with tensors: `load`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coreai.authoring import AIModelAsset, AIProgram
from coreai.runtime import NDArray
from torch import Tensor

from ..errors import ArgumentTypeError, NamingError, NativeError, RunError
from ..numerics.arrays import array, tensor
from .array_memory import array_of, shared
from .program import Program
from .resources import asset_at
from .runtime_thread import RuntimeThread, load_model
from .worker import to_numpy


def load(source: AIProgram | AIModelAsset | Path | str) -> LoadedProgram:
    """Load a program or an asset on the runtime of this machine, and call it with tensors.

    ```python
    loaded = coreai_torch.load("linear.aimodel")
    y = loaded({"input": torch.randn(2, 8)})["y"]
    ```
    """
    return LoadedProgram(source)


@dataclass(frozen=True)
class Port:
    """The sizes and the dtype of an input, output or state; a negative size is dynamic."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class LoadedFunction:
    """An entry point with its ports in order."""

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    states: Mapping[str, Port]
    call: Any  # of the runtime


class LoadedProgram:
    """A program that is compiled for this machine; several threads may call it.

    On Linux the runtime runs in this process, so a crash of the runtime ends it.
    """

    def __init__(self, source: AIProgram | AIModelAsset | Path | str) -> None:
        """Load all entry points."""
        resources = ExitStack()
        asset = _asset(source, resources)
        self._thread = RuntimeThread("coreai-program", resources)
        # Keep the model: functions return garbage once it is garbage-collected.
        self._model = self._thread.wait(load_model(asset))
        names = list(self._model.function_names)
        self.functions = {name: _function(self._model.load_function(name)) for name in names}

    def __call__(
        self,
        inputs: Mapping[str, Any],
        *,
        state: Mapping[str, Tensor] | None = None,
        entrypoint: str = "main",
    ) -> dict[str, Tensor]:
        """Return the outputs by name; the tensors of `state` are updated in place.

        Inputs are tensors, arrays or numbers; they are cast to the dtypes of the program. A state
        that `keep` moved is updated without a copy.
        """
        function = self._function(entrypoint)
        _check_names("input", inputs, function.inputs)
        _check_names("state", state or {}, function.states)
        given = {n: NDArray(_as_port(n, v, function.inputs[n])) for n, v in inputs.items()}
        states = {n: _State(n, v, function.states[n]) for n, v in (state or {}).items()}
        held = {name: one.array for name, one in states.items()}
        try:
            results = self._thread.wait(function.call(given, **({"state": held} if held else {})))
        except RuntimeError as error:
            raise NativeError(f"the runtime could not run {entrypoint!r}: {error}") from error
        for one in states.values():
            one.write_back()
        return {name: tensor(to_numpy(results[name])) for name in function.outputs}

    def keep(self, value: Tensor) -> Tensor:
        """Move a tensor to memory of the runtime, which updates it as a state without a copy."""
        if array_of(value) is None:
            value.data = shared(value.detach())
        return value

    def _function(self, entrypoint: str) -> LoadedFunction:
        if entrypoint not in self.functions:
            raise NamingError(
                f"no entrypoint {entrypoint!r}\n  try   pass one of {list(self.functions)}"
            )
        return self.functions[entrypoint]


class _State:
    """A state of a call: an array of the runtime, and the tensor to write back to."""

    def __init__(self, name: str, value: Any, port: Port) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"the state {name!r} is {value!r}\n  try   pass a tensor")
        held = array_of(value)
        self._target = value if held is None else None
        self.array = NDArray(_as_port(name, value, port)) if held is None else held

    def write_back(self) -> None:
        """Copy the new value to a tensor that does not share the memory."""
        if self._target is not None:
            with torch.no_grad():
                self._target.copy_(tensor(to_numpy(self.array)))


def _asset(source: AIProgram | AIModelAsset | Path | str, resources: ExitStack) -> AIModelAsset:
    if isinstance(source, AIModelAsset):
        return source
    if isinstance(source, str | Path):
        return asset_at(Path(source))
    if isinstance(source, AIProgram):
        folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="coreai-torch-"))
        return Program.save_asset(source, Path(folder) / "program.aimodel")
    raise ArgumentTypeError(
        f"expected a Core AI program, not a {type(source).__name__}\n"
        "  try   pass an AIProgram, an AIModelAsset or the path of an .aimodel"
    )


def _function(function: Any) -> LoadedFunction:
    ports = {
        kind: {
            name: _port(getattr(function.desc, f"{kind}_descriptor")(name))
            for name in getattr(function.desc, f"{kind}_names")
        }
        for kind in ("input", "output", "state")
    }
    return LoadedFunction(ports["input"], ports["output"], ports["state"], function)


def _port(descriptor: Any) -> Port:
    shape = tuple(map(int, descriptor.shape))
    return Port(shape, tensor(np.zeros(1, dtype=descriptor.dtype)).dtype)


def _check_names(kind: str, given: Mapping[str, Any], ports: Mapping[str, Port]) -> None:
    missing, unknown = [n for n in ports if n not in given], [n for n in given if n not in ports]
    if missing or unknown:
        what = f"{missing} are missing" if missing else f"{unknown} are unknown"
        raise NamingError(f"wrong {kind}s: {what}\n  try   pass {list(ports)}")


def _as_port(name: str, value: Any, port: Port) -> np.ndarray[Any, Any]:
    """Return a value in the dtype of a port; raise if its sizes do not fit."""
    value = torch.as_tensor(value)
    sizes = zip(value.shape, port.shape, strict=False)
    if value.dim() != len(port.shape) or any(m not in (n, -1) and m >= 0 for n, m in sizes):
        raise RunError(
            f"{name!r} has the sizes {list(value.shape)}, but the program takes {list(port.shape)}"
            "\n  try   pass these sizes, or convert with dynamic sizes (-1 in the list)"
        )
    if value.dtype.is_floating_point and not port.dtype.is_floating_point:
        raise RunError(
            f"{name!r} is {value.dtype}, but the program takes {port.dtype}\n"
            "  try   round and cast it yourself"
        )
    return array(value if value.dtype == port.dtype else value.to(port.dtype))
