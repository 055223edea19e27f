"""Run the `main` function of a bundle as the sequential engine does."""

from __future__ import annotations

import asyncio
import atexit
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from coreai.runtime import NDArray
from torch import Tensor

from ...asset import resources
from ...asset.worker import to_numpy
from ...errors import GenerationError
from ..generator import EXIT_DELAY, load_model
from .metadata import INPUTS, KEYS, LOGITS, MAIN, VALUES, BundleMetadata

FIRST_SLOTS = 256  # the engine starts with this many slots and doubles them
WHOLE_PROMPT, CHUNK = 1024, 512  # a longer prompt runs in chunks


class BundleRuntime:
    """The loaded function `main` of a bundle; it keeps no tokens between calls."""

    def __init__(self, bundle: Path | str) -> None:
        """Load the asset of a bundle."""
        self.bundle = Path(bundle)
        self.metadata = BundleMetadata.read(self.bundle)
        path = self.bundle / self.metadata.asset
        if not path.is_dir():
            raise GenerationError(
                f"{self.bundle} has no asset {self.metadata.asset}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )
        # The thread has its own event loop: a notebook already runs one in the main thread.
        self._thread = ThreadPoolExecutor(1, "coreai-bundle")
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, _release, self._thread, self._loop)
        atexit.register(time.sleep, EXIT_DELAY)
        # Keep the model: functions return garbage once it is garbage-collected.
        self._model = self._wait(load_model(resources.asset_at(path)))
        self.function_names = list(self._model.function_names)
        if MAIN not in self.function_names:
            raise GenerationError(
                f"{path} has the functions {self.function_names}, but not {MAIN!r}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )
        self._function = self._model.load_function(MAIN)
        self.ports = self._function.desc

    def states(self, slots: int = FIRST_SLOTS, fill: float = 0.0) -> States:
        """Return states with a number of slots, all with one value."""
        arrays = []
        for name in (KEYS, VALUES):
            port = self.ports.state_descriptor(name)
            shape = [slots if size < 0 else int(size) for size in port.shape]
            arrays.append(np.full(shape, fill, dtype=port.dtype))
        return States(*arrays)

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        feeds = {
            INPUTS[0]: NDArray(tokens.reshape(1, -1).to(torch.int32).contiguous().numpy()),
            INPUTS[1]: NDArray(np.arange(total, dtype=np.int32)[None]),
        }
        results = self._wait(self._function(feeds, state=states.arrays))
        return torch.from_numpy(np.array(to_numpy(results[LOGITS]), copy=True))[0]

    def _wait(self, work: Any) -> Any:
        return self._thread.submit(self._loop.run_until_complete, work).result()


class States:
    """Keys and values `[layers, 1, heads, slots, width]`, updated in place by the runtime."""

    def __init__(self, keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
        self.arrays = {KEYS: NDArray(keys), VALUES: NDArray(values)}

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return int(self.numpy(KEYS).shape[3])

    def numpy(self, name: str) -> np.ndarray[Any, Any]:
        """Return the current content of one state."""
        return to_numpy(self.arrays[name])

    def resized(self, slots: int, used: int) -> States:
        """Return states with other slots that contain the first `used` rows."""
        new = []
        for name in (KEYS, VALUES):
            old = self.numpy(name)
            grown = np.zeros((*old.shape[:3], slots, old.shape[4]), dtype=old.dtype)
            grown[:, :, :, :used] = old[:, :, :, :used]
            new.append(grown)
        return States(*new)

    def copy(self) -> States:
        """Return an independent copy."""
        return States(*(np.array(self.numpy(name), copy=True) for name in (KEYS, VALUES)))


class Sequence:
    """One sequence in the cache: append tokens, rewind, grow by doubling."""

    def __init__(self, runtime: BundleRuntime, states: States | None = None) -> None:
        self.runtime = runtime
        self.states = runtime.states() if states is None else states
        self.length = 0  # tokens in the cache

    def append(self, tokens: Tensor, *, chunk: int | None = None) -> Tensor:
        """Run tokens `[n]` and return their logits `[n, vocab]`; grow the cache if needed.

        A prompt of more than 1024 tokens runs in chunks of 512, or of `chunk`.
        """
        size = chunk or (CHUNK if len(tokens) > WHOLE_PROMPT else max(len(tokens), 1))
        return torch.cat([self._append(piece) for piece in tokens.split(size)])

    def _append(self, tokens: Tensor) -> Tensor:
        total = self.length + len(tokens)
        slots = self.states.slots
        if total > slots:
            while slots < total:
                slots *= 2
            self.states = self.states.resized(slots, self.length)
        logits = self.runtime(tokens, total, self.states)
        self.length = total
        return logits

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first `length`; their rows stay in the cache."""
        self.length = min(length, self.length)


def is_half(dtype: Any) -> bool:
    """Return whether a state has 16 bits per number."""
    return np.dtype(dtype) in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def _release(thread: ThreadPoolExecutor, loop: asyncio.AbstractEventLoop) -> None:
    thread.shutdown()
    loop.close()
