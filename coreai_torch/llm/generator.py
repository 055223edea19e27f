"""`Generator`: greedy tokens from a converted model, on the run time of this machine."""

from __future__ import annotations

import asyncio
import atexit
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray
from torch import Tensor

from ..errors import GenerationError
from .program import Description, GenerationProgram

Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# A thread of the run time may ask for the interpreter while it shuts down, and aborts the process.
_REST = 0.1


class Generator:
    """Runs a converted model token by token; its states are the cache.

    One generator holds one cache: calls from several threads must take turns.
    """

    def __init__(self, source: GenerationProgram | AIModelAsset | Path | str) -> None:
        """Load a program, a saved asset, or the path of one."""
        self._held = AsyncExitStack()
        # A loop of its own, so that a notebook's running loop is not in the way.
        self._thread = ThreadPoolExecutor(1, "coreai-generator")
        self._loop = asyncio.new_event_loop()
        asset = self._asset(source)
        self.description = Description.loaded(asset)
        self._model = self._wait(self._held.enter_async_context(asset.executable()))
        atexit.register(time.sleep, _REST)
        self._functions = {
            name: self._model.load_function(name) for name in self._model.function_names
        }
        self._states = self._empty()

    def generate(
        self,
        input_ids: Any,
        max_new_tokens: int | None = None,
        *,
        eos_token_id: int | Sequence[int] | None = None,
        logits_processor: Processor | None = None,
    ) -> Tensor:
        """The prompt and the tokens after it, as `generate(do_sample=False)` of transformers.

        `input_ids` are `[batch, length]`. It ends with `max_new_tokens`, by default when the cache
        is full, or when every sequence has come to an end token, by default the model's own; what
        follows an end is padding. `logits_processor` gets the tokens so far and the logits, and
        returns other logits: a `LogitsProcessorList`, or any function.
        """
        prompt = self._prompt(input_ids)
        steps = self.stream(
            prompt,
            max_new_tokens,
            eos_token_id=eos_token_id,
            logits_processor=logits_processor,
        )
        return torch.cat([prompt, *(tokens[:, None] for tokens in steps)], 1)

    def stream(
        self,
        input_ids: Any,
        max_new_tokens: int | None = None,
        *,
        eos_token_id: int | Sequence[int] | None = None,
        logits_processor: Processor | None = None,
    ) -> Iterator[Tensor]:
        """The new tokens of `generate`, `[batch]` at a time, as they are made."""
        prompt = self._prompt(input_ids)
        count = self._count(prompt.shape[1], max_new_tokens)
        ends = self._ends(eos_token_id)
        return self._steps(prompt, count, ends, logits_processor)

    def _steps(
        self, tokens: Tensor, count: int, ends: Tensor, processor: Processor | None
    ) -> Iterator[Tensor]:
        done = torch.zeros(len(tokens), dtype=torch.bool)
        pad = self._padding(ends)
        feed, position = tokens, 0
        for _ in range(count):
            logits = self._logits(feed, position)
            if processor is not None:
                logits = processor(tokens, logits)
            new = torch.where(done, pad, logits.argmax(-1))
            yield new
            done |= torch.isin(new, ends)
            if done.all():
                return
            position += feed.shape[1]
            feed = new[:, None]
            tokens = torch.cat([tokens, feed], 1)

    def _logits(self, tokens: Tensor, position: int) -> Tensor:
        """After the last of the tokens, which are cached."""
        function = self._functions["decode" if tokens.shape[1] == 1 else "prefill"]
        feeds = {"input_ids": _array(tokens), "position": _array(torch.tensor([position]))}
        results = self._wait(function(feeds, state=self._states))
        return _tensor(results["logits"]).float()

    def _prompt(self, given: Any) -> Tensor:
        """Tokens that the program takes."""
        tokens = torch.as_tensor(given)
        if tokens.ndim != 2 or tokens.is_floating_point() or 0 in tokens.shape:
            raise GenerationError(
                f"input_ids are {tokens.dtype} of shape {list(tokens.shape)}\n"
                "  try   integers of shape [batch, length], such as "
                "tokenizer(text, return_tensors='pt').input_ids"
            )
        held = self.description
        if len(tokens) != held.batch_size:
            raise GenerationError(
                f"a batch of {len(tokens)}, the program was converted for {held.batch_size}\n"
                f"  try   coreai_torch.llm.convert(model, ..., batch_size={len(tokens)})"
            )
        if tokens.shape[1] > held.max_length:
            raise GenerationError(
                f"a prompt of {tokens.shape[1]} tokens, the cache has {held.max_length} places\n"
                f"  try   coreai_torch.llm.convert(model, max_length=...) with more of them"
            )
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < held.vocabulary:
            raise GenerationError(
                f"tokens from {int(tokens.min())} to {int(tokens.max())}, the model knows "
                f"{held.vocabulary} from 0 on\n  try   the tokenizer of this model"
            )
        return tokens.long()

    def _count(self, prompt: int, wanted: int | None) -> int:
        """How many tokens to make; the cache is never written beyond its end."""
        room = self.description.max_length - prompt
        if wanted is None:
            return room
        if wanted < 0 or wanted > room:
            raise GenerationError(
                f"max_new_tokens is {wanted}; after a prompt of {prompt} tokens a cache of "
                f"{self.description.max_length} has {room} places\n"
                "  try   fewer tokens, or coreai_torch.llm.convert(model, max_length=...)"
            )
        return wanted

    def _ends(self, given: int | Sequence[int] | None) -> Tensor:
        ends = self.description.eos_token_ids if given is None else given
        return torch.tensor([ends] if isinstance(ends, int) else list(ends), dtype=torch.long)

    def _padding(self, ends: Tensor) -> Tensor:
        """Transformers takes the first end if there is no token for it."""
        pad = self.description.pad_token_id
        return torch.tensor(pad if pad is not None else int(ends[0]) if len(ends) else 0)

    def _empty(self) -> dict[str, NDArray]:
        """States of zeros; what a former sequence left in them is hidden by the masks."""
        described = self._functions["decode"].desc
        return {name: _zeros(described.state_descriptor(name)) for name in described.state_names}

    def _asset(self, source: GenerationProgram | AIModelAsset | Path | str) -> AIModelAsset:
        if isinstance(source, GenerationProgram):
            folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="coreai-torch-"))
            return source.save_asset(Path(folder) / "generator.aimodel")
        if isinstance(source, str | Path):
            return AIModelAsset.load(Path(source))
        return source

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.submit(self._loop.run_until_complete, work).result()


def _array(value: Tensor) -> NDArray:
    """Integers in the 32 bits that programs have."""
    return NDArray(value.to(torch.int32).contiguous().numpy())


def _tensor(array: NDArray) -> Tensor:
    plain = array.numpy()
    if plain.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(plain.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(plain, copy=True))


def _zeros(described: Any) -> NDArray:
    return NDArray(np.zeros(described.shape, dtype=described.dtype))
