"""Check the arguments of a generation call against the program that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import GenerationError
from .program import Description, token_ids

MASK = "attention_mask"
CONVERT = "coreai_torch.llm.convert(model, ...)"
TOKENIZE = "tokenizer(text, return_tensors='pt').input_ids"

# Arguments of transformers' generate that are accepted with the value that greedy search implies.
_GREEDY_VALUES = {"do_sample": False, "num_beams": 1, "use_cache": True}
# These change probabilities but never which token is the most likely one, so greedy search ignores
# them. TypicalLogitsWarper is absent: it may mask the most likely token.
_SAMPLING_WARPERS = frozenset(
    f"{name}LogitsWarper"
    for name in ("Epsilon", "Eta", "MinP", "Temperature", "TopH", "TopK", "TopP")
)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise for arguments of transformers' `generate` that a `Generator` does not support."""
    rejected = sorted(
        name
        for name, value in options.items()
        if value is not None and value != _GREEDY_VALUES.get(name)
    )
    if rejected:
        raise GenerationError(
            f"Generator does not support {', '.join(rejected)}; it always takes the most likely "
            f"token\n  try   remove {', '.join(rejected)}; use max_new_tokens to limit the length "
            "and logits_processor to change the logits"
        )


def check_processor(processor: Any) -> None:
    """Raise for logits warpers, which have no effect without sampling."""
    listed = processor if isinstance(processor, Sequence) else [processor]
    for one in listed:
        if any(base.__name__ in _SAMPLING_WARPERS for base in type(one).__mro__):
            name = type(one).__name__
            raise GenerationError(
                f"{name} has no effect: Generator always takes the most likely token\n"
                f"  try   remove {name} from logits_processor"
            )
    if processor is not None and not callable(processor):
        raise GenerationError(
            f"logits_processor is a {type(processor).__name__}, which cannot be called\n"
            "  try   pass a function of (tokens, logits), or wrap several processors in "
            "transformers.LogitsProcessorList"
        )


def one_of(inputs: Any, **named: Any) -> Any:
    """Return the only argument that is not None."""
    given = [value for value in (inputs, *named.values()) if value is not None]
    if len(given) != 1:
        raise GenerationError(
            f"the call has {len(given)} inputs, it needs exactly one\n"
            f"  try   pass one of inputs, {', '.join(named)}"
        )
    return given[0]


def tokens(name: str, value: Any, description: Description) -> Tensor:
    """Return a prompt that fits the cache."""
    prompt = _rows(name, value, description)
    if prompt.shape[1] > description.max_length:
        raise GenerationError(
            f"{name} has {prompt.shape[1]} tokens, the cache has {description.max_length} places\n"
            f"  try   call {CONVERT} with a larger max_length"
        )
    return prompt


def _rows(name: str, value: Any, description: Description) -> Tensor:
    """Return tokens of the vocabulary, in as many rows as the converted batch."""
    rows = _as_tensor(name, value)
    if rows.ndim != 2 or rows.is_floating_point() or 0 in rows.shape:
        raise GenerationError(
            f"{name} is {rows.dtype} of shape {list(rows.shape)}, it must contain integers of "
            f"shape [batch, length]\n  try   pass {TOKENIZE}"
        )
    _check_batch(name, rows, description)
    least, most = int(rows.min()), int(rows.max())
    if least < 0 or most >= description.vocabulary:
        raise GenerationError(
            f"{name} contains tokens from {least} to {most}, the model has the tokens 0 to "
            f"{description.vocabulary - 1}\n  try   use the tokenizer of this model"
        )
    return rows.long()


def _as_tensor(name: str, value: Any) -> Tensor:
    """Convert to a tensor; raise for text and for the dictionary that a tokenizer returns."""
    if _is_text(value):
        raise GenerationError(f"{name} is text, Generator takes tokens\n  try   pass {TOKENIZE}")
    if isinstance(value, Mapping):
        raise GenerationError(
            f"{name} is a {type(value).__name__} of {', '.join(map(str, value))}\n"
            "  try   unpack it: generate(**tokenizer(text, return_tensors='pt'))"
        )
    try:
        return torch.as_tensor(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise GenerationError(
            f"{name} is a {type(value).__name__} that torch cannot convert to a tensor: {error}\n"
            "  try   pass a tensor, or rows of one length"
        ) from error


def _is_text(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_text, value))
    return isinstance(value, str)


def _check_batch(name: str, rows: Tensor, description: Description) -> None:
    if len(rows) != description.batch_size:
        raise GenerationError(
            f"{name} has a batch of {len(rows)}, the program was converted for a batch of "
            f"{description.batch_size}\n  try   call {CONVERT} with batch_size={len(rows)}"
        )


def check_unpadded(mask: Any, prompt: Tensor) -> None:
    """Raise if a mask hides tokens: a decoder counts positions from each row's first token."""
    if mask is not None and not bool(_as_tensor(MASK, mask).bool().all()):
        raise GenerationError(
            f"{MASK} hides tokens of the prompt, but a decoder needs rows without padding "
            f"(rows are {prompt.shape[1]} long)\n"
            "  try   pass prompts of one length, or use one generator with batch_size=1 for each"
        )


def start_tokens(value: Any, description: Description) -> Any:
    """Return the tokens that a decoder with an encoder starts with."""
    if value is not None:
        return value
    if description.start_token_id is None:
        raise GenerationError(
            "the model has no decoder_start_token_id\n  try   pass decoder_input_ids=[[...]]"
        )
    return torch.full((description.batch_size, 1), description.start_token_id)


def source(value: Any, mask: Any, description: Description) -> dict[str, Tensor]:
    """Return the encoder's inputs by name."""
    if description.source == "input_ids":
        return _text_source(value, mask, description)
    name = str(description.source)
    features = _as_tensor(name, value)
    _check_batch(name, features, description)
    if tuple(features.shape[1:]) != description.source_shape:
        raise GenerationError(
            f"{name} has shape {list(features.shape)}, the encoder takes "
            f"{[description.batch_size, *description.source_shape]}\n"
            "  try   use the processor of this model"
        )
    return {name: features}


def _text_source(value: Any, mask: Any, description: Description) -> dict[str, Tensor]:
    rows = _rows("input_ids", value, description)
    (longest,) = description.source_shape
    if rows.shape[1] > longest:
        raise GenerationError(
            f"input_ids has {rows.shape[1]} tokens, the encoder takes {longest}\n"
            f"  try   call {CONVERT} with a larger max_source_length"
        )
    visible = torch.ones_like(rows) if mask is None else _as_tensor(MASK, mask).long()
    if visible.shape != rows.shape:
        raise GenerationError(
            f"{MASK} has shape {list(visible.shape)}, input_ids has shape {list(rows.shape)}\n"
            "  try   pass the mask of these tokens"
        )
    if rows.shape[1] == 1:  # the dynamic length starts at 2
        rows, visible = (torch.nn.functional.pad(x, (0, 1)) for x in (rows, visible))
    return {"input_ids": rows, MASK: visible}


def count(prompt: int, max_new_tokens: int | None, description: Description) -> int:
    """Return the number of tokens to generate; it never exceeds the free part of the cache."""
    free = description.max_length - prompt
    if max_new_tokens is None:
        return free
    if not isinstance(max_new_tokens, int) or not 0 <= max_new_tokens <= free:
        raise GenerationError(
            f"max_new_tokens is {max_new_tokens!r}; after {prompt} tokens a cache of "
            f"{description.max_length} has {free} places left\n"
            f"  try   pass a smaller max_new_tokens, or call {CONVERT} with a larger max_length"
        )
    return max_new_tokens


def ends(eos_token_id: int | Sequence[int] | None, description: Description) -> Tensor:
    """Return the tokens that end a row."""
    ids = description.eos_token_ids if eos_token_id is None else token_ids(eos_token_id)
    return torch.tensor(ids, dtype=torch.long)


def padding(end_tokens: Tensor, description: Description) -> Tensor:
    """Return the token that follows an end token.

    Without a padding token it is the first end token, as in transformers.
    """
    first = int(end_tokens[0]) if len(end_tokens) else 0
    return torch.tensor(first if description.pad_token_id is None else description.pad_token_id)
