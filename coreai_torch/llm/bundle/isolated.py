"""Run a bundle in a child process, so that a crash of the native code is an exception here."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GenerationError
from ...numerics.arrays import array, tensor
from ...verification.isolation import Isolated, ProgramFile
from .metadata import INPUTS, KEYS, LOGITS, MAIN
from .runtime import BundleRuntime
from .states import States

TIMEOUT = 3600.0  # seconds of one call: a long prompt of a large model takes minutes


@dataclass(frozen=True)
class Port:
    """The shape and the dtype of an input, output or state."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _ports(described: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the ports of a function by the names that descriptors of the runtime have."""
    made = SimpleNamespace()
    for kind, ports in described.items():
        setattr(made, f"{kind}_names", list(ports))
        setattr(
            made, f"{kind}_descriptor", {n: Port(*port) for n, port in ports.items()}.__getitem__
        )
    return made


class KeptState:
    """A state in the child; it is lost if the child crashes."""

    def __init__(self, function: IsolatedFunction, key: int, content: np.ndarray[Any, Any]) -> None:
        self.function, self.key = function, key
        self.shape, self.dtype = content.shape, content.dtype

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the content."""
        return self.function.child().fetch(self.key)


class IsolatedFunction:
    """The function `main` of an asset in a child process, which is started again after a crash."""

    def __init__(self, asset: Path) -> None:
        self._source = ProgramFile(asset=asset)
        self._keys, self._forgotten = itertools.count(), list[int]()
        self._child = Isolated(self._source, entrypoint=MAIN, timeout=TIMEOUT)
        weakref.finalize(self, self._child.close)
        described = self._child.describe()
        self.function_names: list[str] = described["functions"]
        self.ports = _ports(described["ports"])

    def child(self) -> Isolated:
        """Return the running child."""
        if not self._child.alive:
            self._child.load(self._source, entrypoint=MAIN)
        return self._child

    def store(self, content: Tensor) -> KeptState:
        """Copy the content of a state to the child."""
        key, numbers = next(self._keys), array(content)
        forgotten = [self._forgotten.pop() for _ in range(len(self._forgotten))]
        self.child().keep(key, numbers, forgotten)
        state = KeptState(self, key, numbers)
        weakref.finalize(state, self._forgotten.append, key)
        return state

    def __call__(self, feeds: Mapping[str, Tensor], states: Any = None) -> dict[str, Tensor]:
        """Return the outputs by name; the states are updated in the child."""
        inputs = {name: array(value.contiguous()) for name, value in feeds.items()}
        kept: dict[str, KeptState] = states or {}
        keys = {name: one.key for name, one in kept.items()}
        shapes = {name: (one.shape, one.dtype) for name, one in kept.items()}
        results = self.child().call_kept(inputs, keys, shapes)
        return {name: tensor(value) for name, value in results.items()}

    def state(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and the dtype of a state."""
        port = self.ports.state_descriptor(name)
        return port.shape, tensor(np.zeros(1, dtype=port.dtype)).dtype


class IsolatedRuntime(BundleRuntime):
    """A bundle whose function runs in a child process."""

    def _load(self) -> None:
        self._isolated = IsolatedFunction(self.asset)
        self.function_names = self._isolated.function_names
        self._check_main()
        self.ports = self._isolated.ports
        if KEYS not in self.ports.state_names:
            raise GenerationError(
                f"{self.asset} has the states {self.ports.state_names}, not {KEYS}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )
        self.state_shape, self.state_dtype = self._isolated.state(KEYS)
        for name in self.metadata.fixed_states:
            self.fixed[name] = self._isolated.state(name)

    def store(self, content: Tensor) -> Any:
        """Copy the content of a state to the child."""
        return self._isolated.store(content)

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        feeds = {
            INPUTS[0]: tokens.reshape(1, -1).to(torch.int32),
            INPUTS[1]: torch.arange(total, dtype=torch.int32)[None],
        }
        return self._isolated(feeds, states.arrays)[LOGITS][0]
