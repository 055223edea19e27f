"""Run the `main` function of a bundle as the sequential engine does."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import GenerationError
from ..native import Load
from .engines import Model, open_model
from .metadata import DTYPE_KEY, INPUTS, KEYS, LOGITS, MAIN, BundleMetadata
from .states import States

FIRST_SLOTS = 256  # the engine starts with this many slots and doubles them
# The runtime copies all slots in each step, so few are unused.
FIRST_SLOTS_HERE = 64
WHOLE_PROMPT, CHUNK = 1024, 512  # a longer prompt runs in chunks


class BundleRuntime:
    """The loaded function `main` of a bundle; it keeps no tokens between calls."""

    unused = float("nan")  # what slots may contain that no token uses yet

    whole_prompt = WHOLE_PROMPT

    def __init__(
        self,
        bundle: Path | str,
        engine: str = "runtime",
        device: str = "cpu",
        load: Load | None = None,
    ) -> None:
        """Load the asset of a bundle as it is written, or with `load`; see `engines`."""
        self.bundle, self.engine, self.device = Path(bundle), engine, device
        self.load_asset = load
        self.first_slots = FIRST_SLOTS if load is None else FIRST_SLOTS_HERE
        self.metadata = BundleMetadata.read(self.bundle)
        # Sizes and dtype of the states of a fixed size, by name.
        self.fixed: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self._load()

    def _load(self) -> None:
        self.model = self._opened(self.metadata.asset)
        states = self.model.states(MAIN)
        if KEYS not in states:
            raise GenerationError(
                f"{self.metadata.asset} has the states {list(states)}, not {KEYS}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )
        self._set_states(*states[KEYS])
        self.fixed = {name: states[name] for name in self.metadata.fixed_states}

    def _opened(self, asset: str, functions: Collection[str] = (MAIN,)) -> Model:
        path = self.bundle / asset
        return open_model(path, self.engine, self.device, self.load_asset, functions)

    @property
    def ports(self) -> Any:
        """Return the descriptor of the function."""
        return self.model.ports(MAIN)

    def _set_states(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Keep the sizes `[layers, 1, heads, slots, width]`, and whether keys are stored so."""
        self.state_dtype = dtype
        self.keys_are_swapped = shape[3] >= 0 > shape[4]  # a static cache has no negative size
        self.state_shape = (*shape[:3], shape[4], shape[3]) if self.keys_are_swapped else shape

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
        return self.model.store(content)

    def grown(self, slots: int, total: int) -> int:
        """Return a number of slots for `total` tokens: the engine doubles it."""
        while slots < total:
            slots = slots * 2 if self.load_asset is None else _next_slots(slots)
        return slots

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        feeds = {
            INPUTS[0]: tokens.reshape(1, -1).to(torch.int32),
            INPUTS[1]: torch.arange(total, dtype=torch.int32)[None],
        }
        results = self.model(MAIN, feeds, states.arrays)
        states.write(results, total)
        return results[LOGITS][0]


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
