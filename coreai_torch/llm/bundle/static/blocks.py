"""Run a static bundle as the engine does: aligned blocks of tokens over a ladder of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ....errors import GenerationError
from .. import metadata
from ..runtime import BundleRuntime
from ..states import States, Storage, as_tensor
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
    """The functions of a static bundle; interleaved caches run in torch only."""

    unused = 8.0  # the mask adds a number to the scores of these slots, so NaN would stay NaN

    def _load(self) -> None:
        context = self.metadata.max_context_length
        self.model = self._opened(self.metadata.asset, names.function_names(context))
        self._table = self.call(names.LOAD, {}, {})[names.TABLE]
        states = self.model.states(names.step_name(names.EXTEND, context, _LARGEST))
        self.state_shape, self.state_dtype = states[names.KEYS][0], torch.float16

    def call(
        self, name: str, feeds: dict[str, Tensor], states: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Run a function; write the new states to the given tensors."""
        given = {key: self.model.store(value.clone()) for key, value in states.items()}
        results = self.model(name, feeds, given)
        for key, value in states.items():
            value.copy_(as_tensor(given[key]))
        return results

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
