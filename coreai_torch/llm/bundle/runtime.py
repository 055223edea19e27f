"""Run the `main` function of a bundle as the sequential engine does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coreai.runtime import NDArray
from torch import Tensor

from ...asset import resources
from ...asset.runtime_thread import RuntimeThread, load_model
from ...asset.worker import to_numpy
from ...errors import GenerationError
from ...numerics.arrays import array, tensor
from .host_loading import Load
from .metadata import DTYPE_KEY, INPUTS, KEYS, LOGITS, MAIN, BundleMetadata
from .states import States

FIRST_SLOTS = 256  # the engine starts with this many slots and doubles them
# The runtime copies all slots in each step, so few are unused.
FIRST_SLOTS_HERE = 64
WHOLE_PROMPT, CHUNK = 1024, 512  # a longer prompt runs in chunks


def open_bundle(
    bundle: Path | str, engine: str = "runtime", device: str = "cpu", load: Load | None = None
) -> BundleRuntime:
    """Load a bundle to run on the runtime of this machine, or in torch on a device."""
    check_engine(engine, device)
    return TorchRuntime(bundle, device) if engine == "torch" else BundleRuntime(bundle, load)


def check_engine(engine: str, device: str) -> None:
    """Raise for an unknown engine, or one that does not run on a device."""
    if engine not in ("runtime", "torch"):
        raise GenerationError(f"unknown engine {engine!r}\n  try   pass 'runtime' or 'torch'")
    if engine == "runtime" and device != "cpu":
        raise GenerationError(
            f"the runtime of this machine does not run on {device}\n  try   pass engine='torch'"
        )
    check_device(device)


def check_device(device: str) -> None:
    """Raise for a device that torch does not have here."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise GenerationError(
            f"torch cannot use the device {device!r}: {reason}\n  try   pass device='cpu'"
        ) from error


class BundleRuntime:
    """The loaded function `main` of a bundle; it keeps no tokens between calls."""

    unused = float("nan")  # what slots may contain that no token uses yet

    whole_prompt = WHOLE_PROMPT

    def __init__(self, bundle: Path | str, load: Load | None = None) -> None:
        """Load the asset of a bundle as it is written, or with `load`."""
        self.bundle = Path(bundle)
        self.load_asset = load or load_model
        self.first_slots = FIRST_SLOTS if load is None else FIRST_SLOTS_HERE
        self.metadata = BundleMetadata.read(self.bundle)
        # Sizes and dtype of the states of a fixed size, by name.
        self.fixed: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self.keys_are_swapped = False  # whether slots are the last axis of the keys
        self.asset = self.bundle / self.metadata.asset
        if not self.asset.is_dir():
            raise GenerationError(
                f"{self.bundle} has no asset {self.metadata.asset}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )
        self._load()

    def _load(self) -> None:
        self._wait = RuntimeThread("coreai-bundle").wait
        # Keep the model: functions return garbage once it is garbage-collected.
        self._model = self._wait(self.load_asset(resources.asset_at(self.asset)))
        self.function_names = list(self._model.function_names)
        self._check_main()
        self._open()

    def _open(self) -> None:
        self._function = self._model.load_function(MAIN)
        self.ports = self._function.desc
        port = self.ports.state_descriptor(KEYS)
        self._set_state_shape(tuple(map(int, port.shape)))
        self.state_dtype = tensor(np.zeros(1, dtype=port.dtype)).dtype
        for name in self.metadata.fixed_states:
            port = self.ports.state_descriptor(name)
            dtype = tensor(np.zeros(1, dtype=port.dtype)).dtype
            self.fixed[name] = (tuple(map(int, port.shape)), dtype)

    def _set_state_shape(self, shape: tuple[int, ...]) -> None:
        """Keep the sizes `[layers, 1, heads, slots, width]`, and whether keys are stored so."""
        self.keys_are_swapped = shape[3] >= 0 > shape[4]  # a static cache has no negative size
        self.state_shape = (*shape[:3], shape[4], shape[3]) if self.keys_are_swapped else shape

    def _check_main(self) -> None:
        if MAIN not in self.function_names:
            raise GenerationError(
                f"{self.asset} has the functions {self.function_names}, but not {MAIN!r}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )

    def states(self, slots: int | None = None, fill: float = 0.0) -> States:
        """Return states with a number of slots, all with one value."""
        slots = self.first_slots if slots is None else slots
        shape = [slots if size < 0 else size for size in self.state_shape]
        value: float = fill
        if not self.state_dtype.is_floating_point and fill:
            value = -128 if math.isnan(fill) else 127  # scales of infinity, in both signs
        keys, values = (torch.full(shape, value, dtype=self.state_dtype) for _ in range(2))
        fixed = {
            name: self.store(torch.full(sizes, fill, dtype=dtype))
            for name, (sizes, dtype) in self.fixed.items()
        }
        return self.with_content(keys, values, fixed)

    def with_content(self, keys: Tensor, values: Tensor, fixed: dict[str, Any]) -> States:
        """Return states with these keys and values `[layers, 1, heads, slots, width]`."""
        swapped = self.keys_are_swapped
        stored = self.store(keys.mT if swapped else keys)
        return States(stored, self.store(values), fixed, keys_are_swapped=swapped)

    @property
    def compute_dtype(self) -> torch.dtype:
        """Return the dtype that the program computes in; that of the states if they are floats."""
        if self.state_dtype.is_floating_point:
            return self.state_dtype
        found: torch.dtype = getattr(torch, self.metadata.user_data.get(DTYPE_KEY, "float32"))
        return found

    def store(self, content: Tensor) -> Any:
        """Return the content of a state in the form that the function updates in place."""
        return NDArray(array(content))

    def grown(self, slots: int, total: int) -> int:
        """Return a number of slots for `total` tokens: the engine doubles it."""
        while slots < total:
            slots = slots * 2 if self.load_asset is load_model else _next_slots(slots)
        return slots

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        feeds = {
            INPUTS[0]: NDArray(tokens.reshape(1, -1).to(torch.int32).contiguous().numpy()),
            INPUTS[1]: NDArray(np.arange(total, dtype=np.int32)[None]),
        }
        results = self._wait(self._function(feeds, state=states.arrays))
        found = {name: tensor(to_numpy(value)) for name, value in results.items()}
        states.write(found, total)
        return found[LOGITS][0]


class TorchRuntime(BundleRuntime):
    """The same function, computed op by op in torch, on the CPU or a GPU."""

    def __init__(self, bundle: Path | str, device: str = "cpu") -> None:
        """Load the asset of a bundle onto a device."""
        self.device = torch.device(device)
        super().__init__(bundle)

    def _load(self) -> None:
        from ...interpreter import to_torch

        module = to_torch(self.asset).to(self.device)
        self.function_names = list(module.functions)
        self._check_main()
        self._in_torch = module.function(MAIN)
        port = self._in_torch.states[KEYS]
        self.state_shape = tuple(max(int(size), -1) for size in port.shape)
        self.state_dtype = port.dtype
        for name in self.metadata.fixed_states:
            port = self._in_torch.states[name]
            self.fixed[name] = (tuple(map(int, port.shape)), port.dtype)

    def store(self, content: Tensor) -> Any:
        """Return the content on the device."""
        return content.to(self.device)

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        feeds = {
            INPUTS[0]: tokens.reshape(1, -1).to(torch.int32),
            INPUTS[1]: torch.arange(total, dtype=torch.int32)[None],
        }
        return torch.as_tensor(self._in_torch(feeds, state=states.arrays)[LOGITS][0].cpu())


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
        if not len(tokens):  # the runtime (coreai-core 1.0.0b3) aborts the process
            raise GenerationError("no tokens are given\n  try   pass at least one token")
        whole = len(tokens) <= self.runtime.whole_prompt
        size = chunk or (len(tokens) if whole else CHUNK)
        return torch.cat([self._append(piece) for piece in tokens.split(size)])

    def _append(self, tokens: Tensor) -> Tensor:
        total = self.length + len(tokens)
        slots = self.states.slots
        if total > slots:
            slots = self.runtime.grown(slots, total)
            self.states = self.states.resized(self.runtime, slots, self.length)
        logits = self.runtime(tokens, total, self.states)
        self.length = total
        return logits

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first `length`; their rows stay in the cache.

        States of a fixed size cannot return to a prefix, so all tokens must run again.
        """
        if length < self.length:
            self.length = 0 if self.runtime.fixed else length


def _next_slots(slots: int) -> int:
    """Return a quarter more slots, in multiples of 64."""
    return FIRST_SLOTS_HERE * -(-(slots + slots // 4 + 1) // FIRST_SLOTS_HERE)
