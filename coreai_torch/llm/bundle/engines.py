"""Load an asset of a bundle on the runtime, on the runtime in a child process, or in torch."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...asset import resources
from ...asset.runtime_thread import load_model
from ...errors import GenerationError
from ...numerics.arrays import array, tensor
from ...verification.isolation import Isolated, ProgramFile
from ..native import Load, NativeModel, states_of
from .metadata import MAIN

TIMEOUT = 3600.0  # seconds of one call: a long prompt of a large model takes minutes


class Model(Protocol):
    """The functions of one asset."""

    function_names: list[str]

    def __call__(
        self, function: str, feeds: Mapping[str, Tensor], states: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in place."""

    def ports(self, function: str) -> Any:
        """Return the descriptor of a function."""

    def states(self, function: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the shape and the dtype of each state."""

    def store(self, content: Tensor) -> Any:
        """Return the content of a state in the form that a function updates in place."""


def open_model(
    asset: Path,
    engine: str,
    device: str = "cpu",
    load: Load | None = None,
    functions: Collection[str] = (MAIN,),
) -> Model:
    """Load an asset; raise if it is missing or lacks one of the functions.

    The engine "isolated" is the runtime in a child process, so that a crash of the native code is
    an exception here.
    """
    if not asset.is_dir():
        raise GenerationError(
            f"{asset.parent} has no asset {asset.name}\n"
            "  try   export the bundle again with coreai_torch.llm.export"
        )
    model: Model
    if engine == "torch":
        model = TorchModel(asset, device)
    elif engine == "isolated":
        model = IsolatedModel(asset)
    else:
        model = NativeModel(resources.asset_at(asset), load or load_model)
    missing = set(functions) - set(model.function_names)
    if missing:
        raise GenerationError(
            f"{asset} lacks the functions {', '.join(sorted(missing))}\n"
            "  try   export the bundle again with coreai_torch.llm.export"
        )
    return model


def check_engine(engine: str, device: str) -> None:
    """Raise for an unknown engine, or one that does not run on a device."""
    if engine not in ("runtime", "torch"):
        raise GenerationError(f"unknown engine {engine!r}\n  try   pass 'runtime' or 'torch'")
    if engine == "runtime" and device != "cpu":
        raise GenerationError(
            f"the runtime of this machine does not run on {device}\n  try   pass engine='torch'"
        )
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise GenerationError(
            f"torch cannot use the device {device!r}: {reason}\n  try   pass device='cpu'"
        ) from error


class TorchModel:
    """An asset that is computed op by op in torch, on the CPU or a GPU."""

    def __init__(self, asset: Path, device: str) -> None:
        from ...interpreter import to_torch

        self.device = torch.device(device)
        self._module = to_torch(asset).to(self.device)
        self.function_names = list(self._module.functions)

    def __call__(
        self, function: str, feeds: Mapping[str, Tensor], states: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in place."""
        results = self.ports(function)(dict(feeds), state=dict(states))
        return {name: torch.as_tensor(value).cpu() for name, value in results.items()}

    def ports(self, function: str) -> Any:
        """Return the function, which has the types of its inputs, states and outputs."""
        return self._module.function(function)

    def states(self, function: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the shape and the dtype of each state."""
        return {
            name: (tuple(max(int(size), -1) for size in port.shape), port.dtype)
            for name, port in self.ports(function).states.items()
        }

    def store(self, content: Tensor) -> Tensor:
        """Return the content on the device."""
        return content.to(self.device)


@dataclass(frozen=True)
class _Port:
    """The shape and the dtype of an input, output or state."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _descriptor(described: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the ports of a function by the names that descriptors of the runtime have."""
    made = SimpleNamespace()
    for kind, ports in described.items():
        by_name = {name: _Port(*port) for name, port in ports.items()}
        setattr(made, f"{kind}_names", list(ports))
        setattr(made, f"{kind}_descriptor", by_name.__getitem__)
    return made


class KeptState:
    """A state in the child; it is lost if the child crashes."""

    def __init__(self, model: IsolatedModel, key: int, content: np.ndarray[Any, Any]) -> None:
        self.model, self.key = model, key
        self.shape, self.dtype = content.shape, content.dtype

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the content."""
        return self.model.child().fetch(self.key)


class IsolatedModel:
    """The function `main` of an asset in a child process, which is started again after a crash."""

    def __init__(self, asset: Path) -> None:
        self._source = ProgramFile(asset=asset)
        self._keys, self._forgotten = itertools.count(), list[int]()
        self._child = Isolated(self._source, entrypoint=MAIN, timeout=TIMEOUT)
        weakref.finalize(self, self._child.close)
        described = self._child.describe()
        self.function_names: list[str] = described["functions"]
        self._ports = _descriptor(described["ports"])

    def child(self) -> Isolated:
        """Return the running child."""
        if not self._child.alive:
            self._child.load(self._source, entrypoint=MAIN)
        return self._child

    def __call__(
        self, function: str, feeds: Mapping[str, Tensor], states: Mapping[str, KeptState]
    ) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in the child."""
        inputs = {name: array(value) for name, value in feeds.items()}
        keys = {name: one.key for name, one in states.items()}
        shapes = {name: (one.shape, one.dtype) for name, one in states.items()}
        results = self.child().call_kept(inputs, keys, shapes)
        return {name: tensor(value) for name, value in results.items()}

    def ports(self, function: str) -> Any:
        """Return the descriptor of the function."""
        return self._ports

    def states(self, function: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the shape and the dtype of each state."""
        return states_of(self._ports)

    def store(self, content: Tensor) -> KeptState:
        """Copy the content of a state to the child."""
        key, numbers = next(self._keys), array(content)
        forgotten = [self._forgotten.pop() for _ in range(len(self._forgotten))]
        self.child().keep(key, numbers, forgotten)
        state = KeptState(self, key, numbers)
        weakref.finalize(state, self._forgotten.append, key)
        return state
