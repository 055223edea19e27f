"""Read prompts: text or tokens, one or several, of any lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import GenerationError
from .metadata import BundleMetadata


@dataclass(frozen=True)
class Prompt:
    """Prompts as tokens, padded on the left."""

    rows: list[list[int]]
    ids: Tensor
    mask: Tensor
    is_text: bool
    is_single: bool

    def grouped(self, texts: list[str], count: int) -> Any:
        """Return one text, or a list for several prompts or continuations."""
        groups = [texts[at : at + count] for at in range(0, len(texts), count)]
        values: list[Any] = [group[0] for group in groups] if count == 1 else list(groups)
        return values[0] if self.is_single else values


def read_prompt(value: Any, tokenizer: Any, metadata: BundleMetadata, pad: int) -> Prompt:
    """Return the tokens of prompts; raise `GenerationError` for those that do not fit."""
    is_text = isinstance(value, str) or _is_list_of(value, str)
    if is_text:
        texts = [value] if isinstance(value, str) else list(value)
        other = next((one for one in texts if not isinstance(one, str)), "")
        if other != "":
            raise _not_a_prompt(f"list of text and {type(other).__name__}")
        rows = [list(tokenizer(text).input_ids) for text in texts]
    else:
        rows = _rows(value)
    _check_rows(rows, metadata)
    longest = max(map(len, rows))
    ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return Prompt(rows, ids, mask, is_text, isinstance(value, str))


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], kind)


def _rows(value: Any) -> list[list[int]]:
    if isinstance(value, Mapping):
        return _unmasked(value)
    if isinstance(value, list | tuple) and not value:
        return []
    if _is_list_of(value, Sequence) or _is_list_of(value, Tensor):
        return [_tokens(row, (1,)).tolist() if len(row) else [] for row in value]
    tokens = _tokens(value, (1, 2))
    found: list[list[int]] = (tokens[None] if tokens.ndim == 1 else tokens).tolist()
    return found


def _tokens(value: Any, ranks: tuple[int, ...]) -> Tensor:
    """Return integers as a tensor; raise for other values, which torch would truncate."""
    try:
        tokens = torch.as_tensor(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise _not_a_prompt(type(value).__name__) from error
    is_integer = not (tokens.is_floating_point() or tokens.is_complex())
    if not is_integer or tokens.dtype == torch.bool or tokens.ndim not in ranks:
        raise _not_a_prompt(f"{tokens.dtype} tensor of shape {list(tokens.shape)}")
    return tokens


def _unmasked(encoding: Mapping[str, Any]) -> list[list[int]]:
    """Return the visible tokens of the dictionary that a tokenizer returns."""
    if "input_ids" not in encoding:
        raise _not_a_prompt(f"dictionary of {', '.join(map(str, encoding))}")
    rows = _rows(encoding["input_ids"])
    mask = encoding.get("attention_mask")
    if mask is None:
        return rows
    if isinstance(mask, Tensor):
        mask = mask.long()  # transformers accepts masks of bool, too
    return [
        [token for token, visible in zip(row, keep, strict=True) if visible]
        for row, keep in zip(rows, _rows(mask), strict=True)
    ]


def _not_a_prompt(what: str) -> GenerationError:
    return GenerationError(
        f"the prompt is a {what}\n  try   pass text, a list of texts, or tokens [batch, length]"
    )


def _check_rows(rows: list[list[int]], metadata: BundleMetadata) -> None:
    if not rows or not all(rows):
        raise GenerationError("a prompt is empty\n  try   pass at least one token for each prompt")
    longest = max(map(len, rows))
    if longest > metadata.max_context_length:
        raise GenerationError(
            f"the prompt has {longest} tokens, the context of {metadata.name} has "
            f"{metadata.max_context_length}\n  try   pass a shorter prompt"
        )
    least, most = min(map(min, rows)), max(map(max, rows))
    if least < 0 or most >= metadata.vocab_size:
        raise GenerationError(
            f"the prompt contains tokens from {least} to {most}, the model has the tokens 0 to "
            f"{metadata.vocab_size - 1}\n  try   use the tokenizer of this bundle"
        )


def only(rows: list[list[int]], what: str) -> list[int]:
    """Return the only row; raise for several prompts."""
    if len(rows) != 1:
        raise GenerationError(f"{what} takes one prompt, not {len(rows)}\n  try   pass one prompt")
    return rows[0]


def read_messages(value: Any) -> list[Any]:
    """Return the messages of a conversation; text is one message of the user."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    messages = list(value) if isinstance(value, list | tuple) else []
    if not messages or not all(_is_message(one) for one in messages):
        raise GenerationError(
            "the messages are not a list of dictionaries with 'role' and 'content'\n"
            '  try   pass text, or [{"role": "user", "content": "..."}]'
        )
    return messages


def _is_message(value: Any) -> bool:
    """Return whether a value has a role and a content, or calls of tools instead of one."""
    if not isinstance(value, Mapping):
        return hasattr(value, "role")  # a dataclass or a model of pydantic
    return isinstance(value.get("role"), str) and len(value) > 1


def cut_at(text: str, stop: str | Sequence[str]) -> str:
    """Return the text before the first stop text."""
    places = [text.find(one) for one in ([stop] if isinstance(stop, str) else stop) if one]
    found = [place for place in places if place >= 0]
    return text[: min(found)] if found else text
