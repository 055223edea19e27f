"""`Generator`: greedy decoding with a converted model, on the runtime of this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray
from torch import Tensor

from ..asset import resources
from ..errors import GenerationError
from . import request_checks
from .native import NativeModel
from .program import Description, GenerationProgram

Arrays: TypeAlias = dict[str, NDArray]
Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class Generator:
    """Run a converted model token by token; its states are the cache.

    A generator has one cache, so concurrent calls from several threads are not allowed.
    """

    def __init__(self, source: GenerationProgram | AIModelAsset | Path | str) -> None:
        """Load a program, a saved asset, or an asset from its path."""
        resources_to_close = ExitStack()
        asset = _asset(source, resources_to_close)
        self.description = Description.from_asset(asset)
        self._model = NativeModel(asset, resources=resources_to_close)
        # States are never cleared: the model's masks hide the values of earlier sequences.
        states = self._model.states("decode")
        self._states = {
            name: self._model.store(torch.zeros(shape, dtype=dtype))
            for name, (shape, dtype) in states.items()
        }

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
        **options: Any,
    ) -> Tensor:
        """Return prompt and new tokens, equal to `generate(do_sample=False)` of transformers.

        Raises `GenerationError`, before anything runs, if an argument does not fit the program.

        Args:
            inputs: tokens `[batch, length]`, or the input of the encoder. All rows have one
                length, unless an encoder reads their mask.
            max_new_tokens: the number of tokens after which to stop; by default the cache is
                filled.
            input_ids: same as `inputs`, so that `generate(**tokenizer(...))` works.
            input_features: same as `inputs`, for Whisper's processor.
            attention_mask: zero where the encoder's tokens are padding.
            decoder_input_ids: the first tokens of a decoder with an encoder, used unchanged; by
                default its start token.
            eos_token_id: tokens that end a row, by default those of the model. An ended row is
                padded; generation stops when every row has ended.
            logits_processor: a function of the tokens so far and the logits that returns new
                logits, such as a `LogitsProcessorList`. Warpers that only affect sampling, such as
                `TopKLogitsWarper`, are rejected.
            options: other arguments of transformers' `generate`. Only values that mean greedy
                search are accepted: `do_sample=False`, `num_beams=1`, `use_cache=True`.
        """
        request_checks.check_options(options)
        value = request_checks.one_of(inputs, input_ids=input_ids, input_features=input_features)
        prompt, source = self._prepare(value, attention_mask, decoder_input_ids)
        steps = self._steps(prompt, source, max_new_tokens, eos_token_id, logits_processor)
        return torch.cat([prompt, *(tokens[:, None] for tokens in steps)], 1)

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
        **options: Any,
    ) -> Iterator[Tensor]:
        """Yield the new tokens of `generate`, `[batch]` at a time; it takes the same arguments."""
        request_checks.check_options(options)
        value = request_checks.one_of(inputs, input_ids=input_ids, input_features=input_features)
        prompt, source = self._prepare(value, attention_mask, decoder_input_ids)
        return self._steps(prompt, source, max_new_tokens, eos_token_id, logits_processor)

    def _prepare(self, value: Any, mask: Any, decoder_input_ids: Any) -> tuple[Tensor, Arrays]:
        """Return the first tokens, and the decoder's inputs that come from an encoded source."""
        description = self.description
        if description.source is None:
            if decoder_input_ids is not None:
                raise GenerationError(
                    "decoder_input_ids are given, but the model has no encoder\n"
                    "  try   pass them as input_ids"
                )
            prompt = request_checks.tokens("input_ids", value, description)
            request_checks.check_unpadded(mask, prompt)
            return prompt, {}
        start = request_checks.start_tokens(decoder_input_ids, description)
        prompt = request_checks.tokens("decoder_input_ids", start, description)
        return prompt, self._encode(value, mask)

    def _encode(self, value: Any, mask: Any) -> Arrays:
        """Return keys and values of a source, and its mask, by the names of decoder inputs."""
        feeds = request_checks.source(value, mask, self.description)
        ports = self._model.ports("encode")
        arrays = {n: _array(t, ports.input_descriptor(n)) for n, t in feeds.items()}
        results = self._model("encode", arrays, {})
        encoded = {name: self._model.store(results[name]) for name in ports.output_names}
        if request_checks.MASK in self._model.ports("decode").input_names:
            encoded[request_checks.MASK] = arrays[request_checks.MASK]
        return encoded

    def _steps(
        self,
        tokens: Tensor,
        source: Arrays,
        max_new_tokens: int | None,
        eos_token_id: int | Sequence[int] | None,
        processor: Processor | None,
    ) -> Iterator[Tensor]:
        """Check the arguments at once; the returned iterator generates on demand."""
        request_checks.check_processor(processor)
        count = request_checks.count(tokens.shape[1], max_new_tokens, self.description)
        ends = request_checks.ends(eos_token_id, self.description)
        return self._generate(tokens, source, count, ends, processor)

    def _generate(
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
        """Add the tokens to the cache and return the logits after the last one."""
        function = "decode" if tokens.shape[1] == 1 else "prefill"
        given = {"input_ids": tokens.to(torch.int32), "position": torch.tensor([position])}
        return self._model(function, given | source, self._states)["logits"].float()


def _asset(source: GenerationProgram | AIModelAsset | Path | str, stack: ExitStack) -> AIModelAsset:
    """Return a saved asset; a program is saved to a folder that `stack` removes."""
    if isinstance(source, GenerationProgram):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="coreai-torch-"))
        return source.save_asset(Path(folder) / "generator.aimodel")
    if isinstance(source, str | Path):
        if not Path(source).is_dir():
            raise GenerationError(
                f"there is no asset at {source}\n"
                f"  try   write one with {request_checks.CONVERT}.save_asset(path)"
            )
        return resources.asset_at(Path(source))
    if isinstance(source, AIModelAsset):
        return source
    raise GenerationError(
        f"Generator cannot run a {type(source).__name__}\n"
        f"  try   pass {request_checks.CONVERT}, an asset that was saved from it, or its path"
    )


def _array(value: Tensor, port: Any) -> NDArray:
    """Convert to the port's dtype: programs have no 64-bit integers, and may use half floats."""
    return NDArray(value.detach().cpu().contiguous().numpy().astype(port.dtype))
