"""An asset on the runtime of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import numpy as np
import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray
from torch import Tensor

from ..asset.runtime_thread import RuntimeThread, load_model
from ..asset.worker import to_numpy
from ..numerics.arrays import array, tensor

Load: TypeAlias = Callable[[AIModelAsset], Awaitable[Any]]


class NativeModel:
    """A loaded asset, whose functions take and return tensors."""

    def __init__(
        self, asset: AIModelAsset, load: Load = load_model, resources: ExitStack | None = None
    ) -> None:
        """Load an asset; `resources` are closed when the model is no longer used."""
        self._wait = RuntimeThread("coreai-model", resources).wait
        # Keep the model: functions return garbage once it is garbage-collected.
        self._model = self._wait(load(asset))
        self._functions: dict[str, Any] = {}
        self.function_names = list(self._model.function_names)

    def __call__(
        self, function: str, feeds: Mapping[str, Tensor | NDArray], states: Mapping[str, NDArray]
    ) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in place."""
        given = {n: v if isinstance(v, NDArray) else self.store(v) for n, v in feeds.items()}
        results = self._wait(self._function(function)(given, state=dict(states)))
        return {name: tensor(to_numpy(value)) for name, value in results.items()}

    def ports(self, function: str) -> Any:
        """Return the descriptor of a function."""
        return self._function(function).desc

    def states(self, function: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the shape and the dtype of each state."""
        return states_of(self.ports(function))

    def store(self, content: Tensor) -> NDArray:
        """Return the content of an input or state in the form that a function takes."""
        return NDArray(array(content))

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self._model.load_function(name)
        return self._functions[name]


def states_of(ports: Any) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return the shape and the dtype of each state in a descriptor."""
    found = {name: ports.state_descriptor(name) for name in ports.state_names}
    return {
        name: (tuple(map(int, one.shape)), tensor(np.zeros(1, dtype=one.dtype)).dtype)
        for name, one in found.items()
    }
