"""`Generator`: greedy tokens from a converted model, on the run time of this machine."""

from __future__ import annotations

import asyncio
import atexit
import tempfile
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray
from torch import Tensor

from ..asset import resources
from ..errors import GenerationError
from . import request_checks
from .program import Description, GenerationProgram

Arrays: TypeAlias = dict[str, NDArray]
Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# A thread of the run time may ask for the interpreter while it shuts down, and aborts the process.
_REST = 0.1


class Generator:
    """Runs a converted model token by token; its states are the cache.

    One generator holds one cache: calls from several threads must take turns.
    """

    def __init__(self, source: GenerationProgram | AIModelAsset | Path | str) -> None:
        """Load a program, a saved asset, or the path of one."""
        held = ExitStack()
        asset = _asset(source, held)
        self.description = Description.loaded(asset)
        # A thread with a loop of its own, so that a notebook's running loop is not in the way.
        self._thread = ThreadPoolExecutor(1, "coreai-generator")
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, _release, self._thread, self._loop, held)
        atexit.register(time.sleep, _REST)
        # Functions return garbage once their model is collected.
        self._model = self._wait(_loaded(asset))
        names = self._model.function_names
        self._functions = {name: self._model.load_function(name) for name in names}
        # What a former sequence left in the states is hidden by the model's masks.
        ports = self._functions["decode"].desc
        self._states = {name: _zeros(ports.state_descriptor(name)) for name in ports.state_names}

    def generate(
        self,
        inputs: Any = None,
        max_new_tokens: int | None = None,
        *,
        input_ids: Any = None,
        input_features: Any = None,
        attention_mask: Any = None,
        decoder_input_ids: Any = None,
        eos_token_id: int | Sequence[int] | None = None,
        logits_processor: Processor | None = None,
    ) -> Tensor:
        """Prompt and new tokens, as `generate(do_sample=False)` of transformers gives them.

        A `GenerationError` tells what does not fit the program, before anything runs.

        Args:
            inputs: tokens `[batch, length]`, or what the model encodes. All rows have one length,
                unless an encoder reads their mask.
            max_new_tokens: where to stop; by default when the cache is full.
            input_ids: another name of `inputs`, so that `generate(**tokenizer(...))` works.
            input_features: the same for Whisper's processor.
            attention_mask: zero where an encoder's tokens are padding.
            decoder_input_ids: what a decoder behind an encoder begins with, as they are; by
                default its start token.
            eos_token_id: tokens that end a row, by default the model's own. It is padded then,
                and all stops when every row has ended.
            logits_processor: gets the tokens so far and the logits, and returns other logits: a
                `LogitsProcessorList`, or any function.
        """
        given = request_checks.one_of(inputs, input_ids=input_ids, input_features=input_features)
        prompt, source = self._prepared(given, attention_mask, decoder_input_ids)
        made = self._steps(prompt, source, max_new_tokens, eos_token_id, logits_processor)
        return torch.cat([prompt, *(tokens[:, None] for tokens in made)], 1)

    def stream(
        self,
        inputs: Any = None,
        max_new_tokens: int | None = None,
        *,
        input_ids: Any = None,
        input_features: Any = None,
        attention_mask: Any = None,
        decoder_input_ids: Any = None,
        eos_token_id: int | Sequence[int] | None = None,
        logits_processor: Processor | None = None,
    ) -> Iterator[Tensor]:
        """The new tokens of `generate`, `[batch]` at a time, as they are made."""
        given = request_checks.one_of(inputs, input_ids=input_ids, input_features=input_features)
        prompt, source = self._prepared(given, attention_mask, decoder_input_ids)
        return self._steps(prompt, source, max_new_tokens, eos_token_id, logits_processor)

    def _prepared(self, given: Any, mask: Any, begun: Any) -> tuple[Tensor, Arrays]:
        """The tokens to begin with, and what the decoder reads of an encoded source."""
        held = self.description
        if held.source is None:
            if begun is not None:
                raise GenerationError(
                    "decoder_input_ids are given, the model has no encoder\n  try   input_ids"
                )
            prompt = request_checks.tokens("input_ids", given, held)
            request_checks.check_unpadded(mask, prompt)
            return prompt, {}
        prompt = request_checks.tokens("decoder_input_ids", request_checks.begun(begun, held), held)
        return prompt, self._encoded(given, mask)

    def _encoded(self, given: Any, mask: Any) -> Arrays:
        """Keys and values of a source, and its mask, under the names of the decoder's inputs."""
        feeds = request_checks.source(given, mask, self.description)
        function = self._functions["encode"]
        described = function.desc
        arrays = {n: _array(t, described.input_descriptor(n)) for n, t in feeds.items()}
        results = self._wait(function(arrays))
        taken = self._functions["decode"].desc.input_names
        crossed = {name: results[name] for name in described.output_names}
        return crossed | {
            n: a for n, a in arrays.items() if n == request_checks.MASK and n in taken
        }

    def _steps(
        self,
        tokens: Tensor,
        source: Arrays,
        max_new_tokens: int | None,
        eos_token_id: int | Sequence[int] | None,
        processor: Processor | None,
    ) -> Iterator[Tensor]:
        """Refuses at once; the rest is done as it is asked for."""
        count = request_checks.count(tokens.shape[1], max_new_tokens, self.description)
        ends = request_checks.ends(eos_token_id, self.description)
        return self._made(tokens, source, count, ends, processor)

    def _made(
        self,
        tokens: Tensor,
        source: Arrays,
        count: int,
        ends: Tensor,
        processor: Processor | None,
    ) -> Iterator[Tensor]:
        done = torch.zeros(len(tokens), dtype=torch.bool)
        pad = request_checks.padding(ends, self.description)
        feed, position = tokens, 0
        for _ in range(count):
            logits = self._logits(feed, position, source)
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

    def _logits(self, tokens: Tensor, position: int, source: Arrays) -> Tensor:
        """After the last of the tokens, whose keys and values are cached."""
        function = self._functions["decode" if tokens.shape[1] == 1 else "prefill"]
        feeds = {
            "input_ids": NDArray(tokens.to(torch.int32).contiguous().numpy()),
            "position": NDArray(np.array([position], dtype=np.int32)),
        }
        results = self._wait(function(feeds | source, state=self._states))
        return _tensor(results["logits"]).float()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.submit(self._loop.run_until_complete, work).result()


def _asset(source: GenerationProgram | AIModelAsset | Path | str, held: ExitStack) -> AIModelAsset:
    """A saved asset; that of a program lies in a folder that is held."""
    if isinstance(source, GenerationProgram):
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="coreai-torch-"))
        return source.save_asset(Path(folder) / "generator.aimodel")
    if isinstance(source, str | Path):
        if not Path(source).is_dir():
            raise GenerationError(
                f"no asset at {source}\n  try   {request_checks.CONVERT}.save_asset(path)"
            )
        return resources.asset_at(Path(source))
    if isinstance(source, AIModelAsset):
        return source
    raise GenerationError(
        f"a {type(source).__name__} cannot be run\n"
        f"  try   {request_checks.CONVERT}, an asset that was saved from it, or the path of one"
    )


async def _loaded(asset: AIModelAsset) -> Any:
    """A loaded model needs the files no more that the context removes."""
    async with asset.executable() as model:
        return model


def _release(thread: ThreadPoolExecutor, loop: asyncio.AbstractEventLoop, held: ExitStack) -> None:
    thread.shutdown()
    loop.close()
    held.close()


def _array(value: Tensor, described: Any) -> NDArray:
    """In the dtype of the port: programs have no integers of 64 bits, models may be half."""
    return NDArray(value.detach().cpu().contiguous().numpy().astype(described.dtype))


def _tensor(array: NDArray) -> Tensor:
    plain = array.numpy()
    if plain.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(plain.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(plain, copy=True))


def _zeros(described: Any) -> NDArray:
    return NDArray(np.zeros(described.shape, dtype=described.dtype))
