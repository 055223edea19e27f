"""What a caller asks of a generator, checked against the program it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import GenerationError
from .program import Description

MASK = "attention_mask"
CONVERT = "coreai_torch.llm.convert(model, ...)"


def one_of(inputs: Any, **named: Any) -> Any:
    """What was given, under whichever name."""
    given = [one for one in (inputs, *named.values()) if one is not None]
    if len(given) != 1:
        raise GenerationError(
            f"{len(given)} inputs are given\n  try   one of inputs, {', '.join(named)}"
        )
    return given[0]


def tokens(name: str, given: Any, held: Description) -> Tensor:
    """A prompt that fits the cache."""
    prompt = _rows(name, given, held)
    if prompt.shape[1] > held.max_length:
        raise GenerationError(
            f"{name} are {prompt.shape[1]} tokens, the cache has {held.max_length} places\n"
            f"  try   {CONVERT} with a larger max_length"
        )
    return prompt


def _rows(name: str, given: Any, held: Description) -> Tensor:
    """Tokens that the model knows, in rows of the converted batch."""
    rows = torch.as_tensor(given)
    if rows.ndim != 2 or rows.is_floating_point() or 0 in rows.shape:
        raise GenerationError(
            f"{name} are {rows.dtype} of shape {list(rows.shape)}\n"
            "  try   integers of shape [batch, length], such as "
            "tokenizer(text, return_tensors='pt').input_ids"
        )
    _check_batch(name, rows, held)
    least, most = int(rows.min()), int(rows.max())
    if least < 0 or most >= held.vocabulary:
        raise GenerationError(
            f"{name} are from {least} to {most}, the model has the tokens 0 to "
            f"{held.vocabulary - 1}\n  try   the tokenizer of this model"
        )
    return rows.long()


def _check_batch(name: str, rows: Tensor, held: Description) -> None:
    if len(rows) != held.batch_size:
        raise GenerationError(
            f"{name} are a batch of {len(rows)}, the program was converted for one of "
            f"{held.batch_size}\n  try   {CONVERT} with batch_size={len(rows)}"
        )


def check_unpadded(mask: Any, prompt: Tensor) -> None:
    """A decoder alone counts its positions from the first token of every row."""
    if mask is not None and not bool(torch.as_tensor(mask).bool().all()):
        raise GenerationError(
            f"{MASK} hides tokens of the prompt, whose rows are {prompt.shape[1]} long\n"
            "  try   prompts of one length, or a generator of batch_size=1 for each"
        )


def begun(given: Any, held: Description) -> Any:
    """What a decoder behind an encoder begins with."""
    if given is not None:
        return given
    if held.start_token_id is None:
        raise GenerationError(
            "the model has no decoder_start_token_id\n  try   decoder_input_ids=[[...]]"
        )
    return torch.full((held.batch_size, 1), held.start_token_id)


def source(given: Any, mask: Any, held: Description) -> dict[str, Tensor]:
    """What the encoder takes, by name."""
    if held.source == "input_ids":
        return _text(given, mask, held)
    features = torch.as_tensor(given)
    _check_batch(str(held.source), features, held)
    if tuple(features.shape[1:]) != held.source_shape:
        raise GenerationError(
            f"{held.source} are of shape {list(features.shape)}, the encoder takes "
            f"{[held.batch_size, *held.source_shape]}\n  try   the processor of this model"
        )
    return {str(held.source): features}


def _text(given: Any, mask: Any, held: Description) -> dict[str, Tensor]:
    rows = _rows("input_ids", given, held)
    (most,) = held.source_shape
    if rows.shape[1] > most:
        raise GenerationError(
            f"input_ids are {rows.shape[1]} tokens, the encoder takes {most}\n"
            f"  try   {CONVERT} with a larger max_source_length"
        )
    seen = torch.ones_like(rows) if mask is None else torch.as_tensor(mask).long()
    if seen.shape != rows.shape:
        raise GenerationError(
            f"{MASK} is of shape {list(seen.shape)}, input_ids of {list(rows.shape)}\n"
            "  try   a mask for these tokens"
        )
    if rows.shape[1] == 1:  # lengths are open from two on
        rows, seen = (torch.nn.functional.pad(one, (0, 1)) for one in (rows, seen))
    return {"input_ids": rows, MASK: seen}


def count(prompt: int, wanted: int | None, held: Description) -> int:
    """How many tokens to make; the cache is never written beyond its end."""
    room = held.max_length - prompt
    if wanted is None:
        return room
    if not 0 <= wanted <= room:
        raise GenerationError(
            f"max_new_tokens is {wanted}; after {prompt} tokens a cache of {held.max_length} has "
            f"{room} places\n  try   fewer of them, or {CONVERT} with a larger max_length"
        )
    return wanted


def ends(given: int | Sequence[int] | None, held: Description) -> Tensor:
    """The tokens that end a row."""
    listed = held.eos_token_ids if given is None else given
    return torch.tensor([listed] if isinstance(listed, int) else list(listed), dtype=torch.long)


def padding(ended: Tensor, held: Description) -> Tensor:
    """What follows an end; like transformers, the first end if there is no token for it."""
    first = int(ended[0]) if len(ended) else 0
    return torch.tensor(first if held.pad_token_id is None else held.pad_token_id)
