"""Run a static bundle as the engine does: aligned blocks of tokens over a ladder of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from coreai.runtime import NDArray
from torch import Tensor

from ....asset.worker import to_numpy
from ....errors import GenerationError
from ....numerics.arrays import array, tensor
from .. import metadata
from ..runtime import BundleRuntime, check_engine
from ..states import States, Storage
from . import names

_LARGEST = max(names.QUERIES)


@dataclass(frozen=True)
class Block:
    """One call: tokens from `start` to `end` of a block of `query` that begins at `step`."""

    query: int
    step: int
    start: int
    end: int


def blocks(start: int, total: int) -> Iterator[Block]:
    """Yield the calls that run the tokens from `start` to `total`.

    A block has the smallest size that fits the remaining tokens, and begins at a multiple of it, so
    that it may run tokens again that are in the cache already.
    """
    while start < total:
        fitting = [one for one in names.QUERIES if one >= total - start]
        query = fitting[0] if fitting else _LARGEST
        step = start // query * query
        end = min(step + query, total)
        yield Block(query, step, start, end)
        start = end


class StaticStates(States):
    """Keys and values `[layers, 1, channels, 1, slots]` for the context, and the tokens in them."""

    def __init__(self, keys: Tensor, values: Tensor, tokens: Tensor) -> None:
        super().__init__(keys, values)
        self.tokens = tokens

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return int(self.arrays[metadata.KEYS].shape[4])

    def content(self, name: str) -> Tensor:
        """Raise: a file with keys and values has the layout of dynamic bundles."""
        raise GenerationError(
            "a static bundle has no prompt cache\n  try   export with target='gpu', or run the "
            "prompt again"
        )

    def resized(self, runtime: Storage, slots: int, used: int) -> States:
        """Raise: the caches have the size of the context from the start."""
        raise GenerationError(
            f"the prompt and the output exceed the context of {self.slots} tokens\n"
            "  try   pass a shorter prompt or a smaller max_new_tokens"
        )

    def copy(self, runtime: Storage) -> StaticStates:
        """Return an independent copy."""
        keys, values = (self.arrays[name].clone() for name in (metadata.KEYS, metadata.VALUES))
        return StaticStates(keys, values, self.tokens.clone())


class StaticRuntime(BundleRuntime):
    """The functions of a static bundle without interleaved caches, on the runtime."""

    unused = 8.0  # the mask adds a number to the scores of these slots, so NaN would stay NaN

    def _check_main(self) -> None:
        missing = set(names.function_names(self.metadata.max_context_length))
        missing -= set(self.function_names)
        if missing:
            raise GenerationError(
                f"{self.asset} lacks the functions {', '.join(sorted(missing))}\n"
                "  try   export the bundle again with coreai_torch.llm.export"
            )

    def _open(self) -> None:
        self._functions: dict[str, Any] = {}
        self._table = self.call(names.LOAD, {}, {})[names.TABLE]
        slots = self.metadata.max_context_length
        self.ports = self.function(names.step_name(names.EXTEND, slots, _LARGEST)).desc
        self.state_shape = tuple(map(int, self.ports.state_descriptor(names.KEYS).shape))
        self.state_dtype = torch.float16

    def function(self, name: str) -> Any:
        """Return a loaded function."""
        if name not in self._functions:
            self._functions[name] = self._model.load_function(name)
        return self._functions[name]

    def call(
        self, name: str, feeds: dict[str, Tensor], states: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Run a function; write the new states to the given tensors."""
        given = {key: NDArray(array(value.contiguous())) for key, value in states.items()}
        inputs = {key: NDArray(array(value.contiguous())) for key, value in feeds.items()}
        results = self._wait(self.function(name)(inputs, state=given))
        for key, value in states.items():
            value.copy_(tensor(to_numpy(given[key])))
        return {key: tensor(to_numpy(value)) for key, value in results.items()}

    def states(self, slots: int | None = None, fill: float = 0.0) -> StaticStates:
        """Return states for the context, all with one value; the engine has one size only."""
        keys, values = (
            torch.full(self.state_shape, fill, dtype=self.state_dtype) for _ in range(2)
        )
        return StaticStates(keys, values, torch.zeros(0, dtype=torch.int32))

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        plan = self._plan(tokens, total, states)
        return torch.cat([self.run(one, names.EXTEND, states) for one in plan])

    def prefill(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append a prompt as the engine does; return the logits of the last block only."""
        rows = torch.empty(0)
        for one in self._plan(tokens, total, states):
            family = names.PROMPT if total - one.start > _LARGEST else names.EXTEND
            rows = self.run(one, family, states)
        return rows

    def _plan(self, tokens: Tensor, total: int, states: States) -> list[Block]:
        start = total - len(tokens)
        if total > self.metadata.max_context_length or not isinstance(states, StaticStates):
            raise GenerationError(
                f"{total} tokens exceed the context of {self.metadata.max_context_length}\n"
                "  try   pass a shorter prompt"
            )
        states.tokens = torch.cat([states.tokens[:start], tokens.to(torch.int32)])
        return list(blocks(start, total))

    def run(self, block: Block, family: str, states: States, slots: int | None = None) -> Tensor:
        """Run one block with the fewest slots or a given number; return its new logits."""
        assert isinstance(states, StaticStates)
        query, step = block.query, block.step
        ladder = names.slots(self.metadata.max_context_length)
        slots = slots or next(one for one in ladder if one > step)
        ids = torch.zeros(1, query, dtype=torch.int32)
        ids[0, : block.end - step] = states.tokens[step : block.end]
        gathered = self.call(
            names.gather_name(query), {names.TOKENS: ids, names.TABLE: self._table}, {}
        )
        feeds = {
            names.INPUT: next(iter(gathered.values())),
            names.POSITIONS: torch.arange(step, step + query).to(torch.uint16)[None],
            names.STEP: torch.tensor([step], dtype=torch.int32),
            names.MASK: causal_mask(block, slots),
            names.TABLE: self._table,
        }
        pairs = ((names.KEYS, metadata.KEYS), (names.VALUES, metadata.VALUES))
        parts = {name: states.arrays[own][..., :slots] for name, own in pairs}
        results = self.call(names.step_name(family, slots, query), feeds, parts)
        if family == names.PROMPT:
            return torch.empty(0)
        rows = results[names.LOGITS].reshape(query, self.metadata.vocab_size)
        return rows[block.start - step : block.end - step]


def causal_mask(block: Block, slots: int) -> Tensor:
    """Return the mask `[1, slots, 1, query]` of the engine: padding tokens see nothing."""
    rows = torch.arange(block.query)
    seen = torch.arange(slots)[:, None] <= block.step + rows
    seen &= rows < block.end - block.step
    return torch.where(seen, 0.0, names.MASKED).to(torch.float16)[None, :, None]


class StaticTorchRuntime(StaticRuntime):
    """The same functions, computed op by op in torch."""

    def __init__(self, bundle: Any, device: str = "cpu") -> None:
        """Load the asset of a bundle onto a device."""
        self.device = torch.device(device)
        super().__init__(bundle)

    def _load(self) -> None:
        from ....interpreter import to_torch

        self._module = to_torch(self.asset).to(self.device)
        self.function_names = list(self._module.functions)
        self._check_main()
        self._table = self.call(names.LOAD, {}, {})[names.TABLE]
        slots = self.metadata.max_context_length
        step = self.function(names.step_name(names.EXTEND, slots, _LARGEST))
        self.state_shape = tuple(map(int, step.states[names.KEYS].shape))
        self.state_dtype = torch.float16

    def function(self, name: str) -> Any:
        """Return a function of the module."""
        return self._module.function(name)

    def call(
        self, name: str, feeds: dict[str, Tensor], states: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Run a function; write the new states to the given tensors."""
        given = {key: value.clone().to(self.device) for key, value in states.items()}
        results = self.function(name)(feeds, state=given)
        for key, value in states.items():
            value.copy_(given[key])
        return {key: value.cpu() for key, value in results.items()}


def open_static(bundle: Path | str, engine: str, device: str) -> StaticTorchRuntime:
    """Load a static bundle; interleaved caches run in torch only.

    The Linux runtime of coreai-core 1.0.0b3 takes interleaved states only as arrays that
    `NDArray.from_descriptor` allocates, and gives no access to their content.
    """
    check_engine(engine, device)
    return StaticTorchRuntime(bundle, device)
