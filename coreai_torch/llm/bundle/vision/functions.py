"""The function `main` of one asset, on the runtime of this machine or in torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coreai.runtime import NDArray
from torch import Tensor

from ....asset import resources
from ....asset.runtime_thread import RuntimeThread, load_model
from ....asset.worker import to_numpy
from ....errors import GenerationError
from ....numerics.arrays import array, tensor
from ..host_loading import Load
from ..metadata import MAIN


class NativeFunction:
    """A function on the runtime of this machine."""

    def __init__(self, asset: Path, load: Load = load_model) -> None:
        self._wait = RuntimeThread("coreai-vision").wait
        # Keep the model: functions return garbage once it is garbage-collected.
        self._model = self._wait(load(resources.asset_at(asset)))
        self.function_names = list(self._model.function_names)
        _check_main(asset, self.function_names)
        self._function = self._model.load_function(MAIN)
        self.ports = self._function.desc

    def __call__(self, feeds: Mapping[str, Tensor], states: Any = None) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in place."""
        given = {name: NDArray(array(value.contiguous())) for name, value in feeds.items()}
        results = self._wait(self._function(given, state=states or {}))
        return {name: tensor(to_numpy(value)) for name, value in results.items()}

    def store(self, content: Tensor) -> Any:
        """Return the content of a state in the form that the function updates in place."""
        return NDArray(array(content))

    def state(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and the dtype of a state."""
        port = self.ports.state_descriptor(name)
        return tuple(map(int, port.shape)), tensor(np.zeros(1, dtype=port.dtype)).dtype


class TorchFunction:
    """The same function, computed op by op in torch, on the CPU or a GPU."""

    def __init__(self, asset: Path, device: str) -> None:
        from ....interpreter import to_torch

        self.device = torch.device(device)
        module = to_torch(asset).to(self.device)
        self.function_names = list(module.functions)
        _check_main(asset, self.function_names)
        self._function = module.function(MAIN)

    def __call__(self, feeds: Mapping[str, Tensor], states: Any = None) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in place."""
        results = self._function(dict(feeds), state=states or {})
        return {name: value.cpu() for name, value in results.items()}

    def store(self, content: Tensor) -> Any:
        """Return the content on the device."""
        return content.to(self.device)

    def state(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and the dtype of a state."""
        port = self._function.states[name]
        return tuple(max(int(size), -1) for size in port.shape), port.dtype


def _check_main(asset: Path, names: list[str]) -> None:
    if MAIN not in names:
        raise GenerationError(
            f"{asset} has the functions {names}, but not {MAIN!r}\n"
            "  try   export the bundle again with coreai_torch.llm.export"
        )
