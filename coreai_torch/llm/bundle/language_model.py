"""Run a bundle with text or tokens, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...errors import GenerationError
from . import prompt_cache as cache_file
from .metadata import GENERATION_KEY, BundleMetadata
from .opening import fast_loading, open_bundle
from .prompts import Prompt, cut_at, only, read_messages, read_prompt
from .request_options import check_seed, check_text_options, generate_arguments, stop_texts
from .streaming import stream_text
from .tokenizer_folder import FOLDER, chat_template, engine_stops, load_tokenizer

Messages: TypeAlias = "str | Sequence[Mapping[str, Any]]"


class LanguageModel:
    """A loaded bundle with its tokenizer.

    Tokens are chosen by `generate` of transformers with the generation config of the model, so the
    same arguments and seed give the same tokens. A call continues from the cache of the previous
    one as far as their tokens are equal. Concurrent calls from several threads are not allowed.
    """

    def __init__(
        self,
        bundle: Path | str,
        *,
        engine: str = "runtime",
        device: str = "cpu",
        expand_weights: bool | None = None,
    ) -> None:
        """Load the asset and the tokenizer of a bundle."""
        from .decoder import BundleDecoder

        runtime = open_bundle(bundle, engine, device, fast_loading(expand_weights))
        self.metadata: BundleMetadata = runtime.metadata
        self._reused = 0
        folder = Path(bundle) / FOLDER
        self.tokenizer = load_tokenizer(folder)
        stored = json.loads(self.metadata.user_data.get(GENERATION_KEY, "{}"))
        self._decoder = BundleDecoder(runtime, stored)
        if self._decoder.generation_config.eos_token_id is None:
            stops = sorted(engine_stops(folder, self.tokenizer))
            self._decoder.generation_config.eos_token_id = stops or None

    @property
    def reused_tokens(self) -> int:
        """Return how many tokens of the last prompt were in the cache already."""
        return self._reused

    def generate(
        self,
        prompt: Any,
        max_new_tokens: int | None = None,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        do_sample: bool | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        num_return_sequences: int = 1,
        prompt_cache: Path | str | None = None,
        **options: Any,
    ) -> Any:
        """Continue a prompt and return the same kind: text for text, tokens for tokens.

        Text returns the new text without special tokens; a list of texts returns a list. Tokens
        return prompt and new tokens as a tensor, as `generate` of transformers does. Several
        prompts may have different lengths.

        Args:
            prompt: text, a list of texts, tokens `[length]` or `[batch, length]`, or lists of
                tokens of different lengths.
            max_new_tokens: the number of tokens after which to stop; by default 512, or fewer if
                the context is full.
            temperature: sample with this temperature; 0 takes the most likely token.
            top_k: sample from this many tokens.
            top_p: sample from the most likely tokens with this total probability.
            min_p: sample from tokens with at least this part of the largest probability.
            repetition_penalty: divide the scores of tokens that occurred already.
            do_sample: sample or not; by default the model's generation config decides, unless a
                sampling argument is given.
            seed: the seed of the sampling; by default the state of torch's generator.
            stop: texts at which to stop; the returned text ends before them.
            num_return_sequences: the number of continuations of each prompt; with more than one,
                text prompts return a list of texts each.
            prompt_cache: a file with the cache of this prompt; it is written if it is missing.
            options: other arguments of transformers' `generate`, such as `logits_processor`,
                `num_beams`, `eos_token_id` or `no_repeat_ngram_size`.
        """
        request = self._read(prompt)
        if request.is_text:
            check_text_options(options)
        arguments = self._arguments(
            request,
            max_new_tokens,
            {
                "temperature": temperature,
                "top_k": top_k,
                "top_p": top_p,
                "min_p": min_p,
                "repetition_penalty": repetition_penalty,
                "do_sample": do_sample,
                "num_return_sequences": num_return_sequences,
                **options,
            },
            stop,
        )
        with self._cached(request, prompt_cache):
            output = self._run(request, arguments, seed)
        if not request.is_text:
            return output
        new = output[:, request.ids.shape[1] :]
        texts = [cut_at(text, stop_texts(stop)) for text in self._decode(new)]
        return request.grouped(texts, num_return_sequences)

    def stream(
        self, prompt: Any, max_new_tokens: int | None = None, *, stop: Any = (), **options: Any
    ) -> Iterator[str]:
        """Yield the new text of one prompt in pieces; it takes the arguments of `generate`."""
        request = self._read(prompt)
        seed, path = options.pop("seed", None), options.pop("prompt_cache", None)
        only(request.rows, "stream")
        check_text_options(options, "stream")
        arguments = self._arguments(request, max_new_tokens, options, stop)
        criteria = list(arguments.pop("stopping_criteria", ()))

        def run(streamer: Any, stopping_criteria: list[Any]) -> None:
            stopping_criteria.extend(criteria)
            more = {"streamer": streamer, "stopping_criteria": stopping_criteria}
            with self._cached(request, path):
                self._run(request, arguments | more, seed)

        return stream_text(run, self.tokenizer, stop_texts(stop))

    def chat(self, messages: Messages, max_new_tokens: int | None = None, **options: Any) -> str:
        """Return the answer to a conversation, or to one message of the user.

        The messages are dictionaries with `role` and `content`. `tools`, `documents` and
        `chat_template_kwargs` go to the chat template, other options to `generate`.
        """
        check_text_options(options, "chat")
        ids = self._render(messages, options)
        output = self.generate(ids, max_new_tokens, **options)
        (text,) = self._decode(output[:, ids.shape[1] :])
        return cut_at(text, stop_texts(options.get("stop")))

    def stream_chat(
        self, messages: Messages, max_new_tokens: int | None = None, **options: Any
    ) -> Iterator[str]:
        """Yield the answer of `chat` in pieces; it takes the same arguments."""
        ids = self._render(messages, options)
        return self.stream(ids, max_new_tokens, **options)

    def save_prompt_cache(self, prompt: Any, path: Path | str) -> None:
        """Run a prompt and write its cache to a file, for `load_prompt_cache`."""
        tokens = tuple(only(self._read(prompt).rows, "save_prompt_cache"))
        self._decoder.pool.logits([tokens])
        self._save(tokens, Path(path))

    def load_prompt_cache(self, path: Path | str) -> int:
        """Read a cache from a file and return the number of its tokens."""
        row = cache_file.read(Path(path), self._decoder.pool.runtime)
        self._decoder.pool.rows = [row]
        return len(row.tokens)

    def logits(self, prompt: Any) -> Tensor:
        """Return the logits of all tokens of one prompt, `[length, vocab]`."""
        from .runtime import Sequence as Tokens

        row = only(self._read(prompt).rows, "logits")
        return Tokens(self._decoder.pool.runtime).append(torch.tensor(row)).float()

    def _read(self, prompt: Any) -> Prompt:
        pad = self._decoder.generation_config.pad_token_id
        return read_prompt(prompt, self.tokenizer, self.metadata, 0 if pad is None else int(pad))

    def _render(self, messages: Messages, options: dict[str, Any]) -> Tensor:
        """Return the tokens of a conversation; take the template's arguments out of `options`."""
        text = self._render_text(read_messages(messages), options)
        return torch.tensor([self.tokenizer(text, add_special_tokens=False).input_ids])

    def _render_text(self, messages: list[Any], options: dict[str, Any]) -> str:
        """Return the text of a conversation; take the template's arguments out of `options`."""
        if chat_template(self.tokenizer) is None:
            raise GenerationError(
                f"the tokenizer of {self.metadata.name} has no chat template\n"
                "  try   call generate(text), or set model.tokenizer.chat_template"
            )
        more = {name: options.pop(name) for name in ("tools", "documents") if name in options}
        named = options.pop("chat_template_kwargs", None) or {}
        if not isinstance(named, Mapping):
            raise GenerationError(
                f"chat_template_kwargs is a {type(named).__name__}\n"
                "  try   pass a dictionary of arguments of the chat template"
            )
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, **{"add_generation_prompt": True, **more, **named, "tokenize": False}
                )
            )
        except Exception as error:  # a template may reject any conversation with its own error
            raise GenerationError(
                f"the chat template of {self.metadata.name} rejects the conversation: {error}\n"
                "  try   pass messages and tools in the form that the model's template expects"
            ) from error

    def _arguments(
        self, request: Prompt, max_new_tokens: int | None, options: dict[str, Any], stop: Any
    ) -> dict[str, Any]:
        context = self.metadata.max_context_length
        return generate_arguments(request, context, max_new_tokens, options, stop, self.tokenizer)

    def _run(self, request: Prompt, arguments: dict[str, Any], seed: int | None) -> Any:
        seed, self._reused = check_seed(seed), self._shared(request)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            try:
                # The pool of rows is the cache; transformers passes all tokens in each step.
                return self._decoder.generate(
                    request.ids, attention_mask=request.mask, use_cache=False, **arguments
                )
            except (TypeError, ValueError) as error:
                if isinstance(error, GenerationError):
                    raise
                raise GenerationError(
                    f"transformers rejects the request: {error}\n"
                    "  try   pass arguments of transformers.GenerationConfig"
                ) from error

    def _shared(self, request: Prompt) -> int:
        rows = self._decoder.pool.rows
        return max((row.shared(request.rows[0]) for row in rows), default=0)

    def _cached(self, request: Prompt, path: Path | str | None) -> Any:
        return cache_file.around(self._decoder.pool, request.rows, path)

    def _save(self, tokens: tuple[int, ...], path: Path) -> None:
        row = next(row for row in self._decoder.pool.rows if row.tokens == tokens)
        cache_file.write(path, row, len(tokens))

    def _decode(self, tokens: Tensor) -> list[str]:
        return list(self.tokenizer.batch_decode(tokens, skip_special_tokens=True))
