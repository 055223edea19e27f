"""Check the arguments of a generation call, and translate them for transformers' `generate`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import GenerationError
from .prompts import Prompt

DEFAULT_NEW_TOKENS = 512

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")
_PROBABILITIES = ("top_p", "min_p", "typical_p")
_COUNTS = ("num_return_sequences", "num_beams")
# Arguments of transformers' `generate` that a bundle cannot honor, each with the value that asks
# for nothing. Guidance and contrastive search call the model with its own cache, some need code
# from the network, and a bundle returns neither attention weights nor hidden states.
_UNSUPPORTED: dict[str, Any] = {
    "assistant_model": None,
    "prompt_lookup_num_tokens": None,
    "past_key_values": None,
    "inputs_embeds": None,
    "cache_implementation": None,
    "use_cache": True,
    "custom_generate": None,
    "images": None,  # only a vision-language bundle takes them
    "guidance_scale": 1.0,
    "negative_prompt_ids": None,
    "negative_prompt_attention_mask": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "num_beam_groups": 1,
    "force_words_ids": None,
    "constraints": None,
    "output_attentions": False,
    "output_hidden_states": False,
    "synced_gpus": False,
}
# Arguments of transformers' `generate` that have another name here.
_OTHER_NAMES = {
    "stop_strings": "pass stop=...",
    "attention_mask": "pass rows of different lengths, or the tokenizer's dictionary, as prompt",
    "input_ids": "pass the tokens as prompt",
    "inputs": "pass the tokens as prompt",
}


def generate_arguments(
    request: Prompt,
    context: int,
    max_new_tokens: Any,
    options: Mapping[str, Any],
    stop: Any,
    tokenizer: Any,
) -> dict[str, Any]:
    """Return the arguments of transformers' `generate`; raise for those without effect."""
    given = {name: value for name, value in options.items() if value is not None}
    _check_supported(given)
    for name in _PROBABILITIES:
        _check_probability(name, given.get(name, 1))
    for name in _COUNTS:
        _check_count(name, given.get(name, 1))
    length = given.pop("max_length", None)
    for name, unused in _UNSUPPORTED.items():
        if name in given and given[name] == unused:
            del given[name]
    if given.get("temperature") == 0:
        del given["temperature"]
        given["do_sample"] = False
    elif any(name in given for name in _SAMPLING):
        given.setdefault("do_sample", True)
    if max_new_tokens is None:
        max_new_tokens = _wanted(request, length, given.get("generation_config"))
    given["max_new_tokens"] = _count(request, context, max_new_tokens)
    texts = stop_texts(stop)
    if texts:
        given |= {"stop_strings": texts, "tokenizer": tokenizer}
    return given


def stop_texts(stop: Any) -> list[str]:
    """Return the texts at which to stop, without empty ones; raise for anything else."""
    texts = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(one, str) for one in texts):
        raise GenerationError(f"stop is {stop!r}, not text\n  try   pass a text or a list of texts")
    return [one for one in texts if one]


def check_text_options(options: Mapping[str, Any], what: str = "") -> None:
    """Raise for options that a call which returns text, or one text (`what`), cannot honor."""
    if options.get("return_dict_in_generate"):
        raise GenerationError(
            "return_dict_in_generate returns tokens, but the call returns text\n"
            "  try   call generate with tokens"
        )
    if what and options.get("num_return_sequences") not in (None, 1):
        raise GenerationError(
            f"{what} returns one continuation, num_return_sequences is "
            f"{options['num_return_sequences']!r}\n  try   call generate instead"
        )


def check_seed(seed: Any) -> int | None:
    """Return the seed; raise unless it is an integer that torch accepts."""
    if seed is None:
        return None
    if not isinstance(seed, int) or isinstance(seed, bool) or not -(2**63) <= seed < 2**64:
        raise GenerationError(f"seed is {seed!r}, not an integer of 64 bits\n  try   pass seed=0")
    return seed


def _check_supported(given: Mapping[str, Any]) -> None:
    rejected = [
        name for name, unused in _UNSUPPORTED.items() if name in given and given[name] != unused
    ]
    if rejected:
        raise GenerationError(
            f"a bundle does not support {', '.join(rejected)}\n  try   remove {', '.join(rejected)}"
        )
    for name, hint in _OTHER_NAMES.items():
        if name in given:
            raise GenerationError(f"{name} is not an argument of a bundle\n  try   {hint}")


def _check_probability(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise GenerationError(
            f"{name} is {value!r}, which is not a probability\n  try   pass {name} from 0 to 1"
        )


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GenerationError(
            f"{name} is {value!r}, not a positive integer\n  try   pass {name}=1 or more"
        )


def _wanted(request: Prompt, max_length: Any, config: Any) -> Any:
    """Return the number of new tokens that `max_length` or a generation config asks for."""
    if max_length is not None:
        if isinstance(max_length, int | float) and math.isfinite(max_length):
            return max_length - request.ids.shape[1]
        raise GenerationError(
            f"max_length is {max_length!r}, not a number of tokens\n  try   pass max_new_tokens"
        )
    return getattr(config, "max_new_tokens", None)


def _count(request: Prompt, context: int, wanted: Any) -> int:
    """Return the number of tokens to generate; raise if they do not fit into the context."""
    free = context - max(map(len, request.rows))
    if wanted is None and free > 0:
        return min(DEFAULT_NEW_TOKENS, free)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= free:
        hint = f"pass max_new_tokens from 1 to {free}" if free > 0 else "pass a shorter prompt"
        raise GenerationError(
            f"max_new_tokens is {wanted!r}; after {context - free} tokens a context of "
            f"{context} has {free} left\n  try   {hint}"
        )
    return wanted
