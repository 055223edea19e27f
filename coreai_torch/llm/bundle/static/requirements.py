"""What a decoder must have for a static bundle; each check raises with the reason."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ....errors import ConversionError
from ..states import LayerShape
from . import names
from .capturing import TOKENS, Captured

DEFAULT_CONTEXT = 4096
_TRY = "\n  try   pass target='gpu'"


def check_decoder(model: Any) -> None:
    """Raise if the decoder cannot run from embeddings with another attention function."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        return  # rejected with a better reason
    embedding = model.get_input_embeddings()
    if type(embedding) is not nn.Embedding:
        raise ConversionError(
            f"the embedding of {name} is a {type(embedding).__name__}; a static bundle looks up "
            f"rows of a table{_TRY}"
        )
    accepted = inspect.signature(model.forward).parameters
    missing = [one for one in ("inputs_embeds", "position_ids") if one not in accepted]
    if missing or not getattr(model, "_supports_attention_backend", False):
        what = f"does not take {' and '.join(missing)}" if missing else "has its own attention"
        raise ConversionError(
            f"{name} {what}; a static bundle needs a decoder like Llama, Qwen or Mistral{_TRY}"
        )


def check_rotary(model: Any, context: int) -> None:
    """Raise for rotary embeddings that depend on the length of the sequence."""
    config = model.config.get_text_config(decoder=True)
    given = getattr(config, "rope_parameters", None) or {}
    nested = [one for one in given.values() if isinstance(one, dict)]
    for one in nested or [given]:
        kind = one.get("rope_type")
        first = one.get("original_max_position_embeddings") or 0
        if kind == "dynamic" or (kind == "longrope" and max(context, TOKENS) > first):
            raise ConversionError(
                f"the rotary embedding of {type(model).__name__} has the type {kind!r}, which "
                f"depends on the length of the sequence{_TRY}"
            )


def check_layers(model: Any, layers: Sequence[LayerShape], context: int) -> LayerShape:
    """Return the shape of all layers; raise if they differ or exceed the context."""
    name, shapes = type(model).__name__, set(layers)
    first = layers[0]
    keys, values = first.key_heads * first.key_width, first.value_heads * first.value_width
    if len(shapes) != 1 or keys != values:
        raise ConversionError(
            f"{name} has layers with different keys or values; the caches of a static bundle have "
            f"one size{_TRY}"
        )
    largest = max(keys, len(layers))
    if largest > context:
        raise ConversionError(
            f"the caches of {name} have {largest} channels or layers, more than the context of "
            f"{context}; the engine takes the largest size of a cache as the context\n"
            f"  try   pass a larger max_context_length, or target='gpu'"
        )
    return first


def choose_context(model: Any, most: int, given: int | None) -> int:
    """Return the context: given, or the largest of the ladder up to 4096."""
    if given is None:
        found = names.largest_context(min(most, DEFAULT_CONTEXT))
        if found is None:
            raise ConversionError(
                f"{type(model).__name__} has {most} positions; a static bundle has at least "
                f"{names.FIRST_SLOTS}{_TRY}"
            )
        return found
    if not names.is_context(given):
        raise ConversionError(
            f"max_context_length is {given}; a static bundle has 256, 512, 1024, ... up to "
            f"{names.LARGEST_CONTEXT} tokens\n"
            f"  try   pass max_context_length={names.slots(min(given, 1 << 15))[-1]}"
        )
    return given


def check_captured(model: Any, captured: Captured, layers: int) -> None:
    """Raise unless each layer has one attention."""
    found = sorted(int(node.args[3]) for node in captured.attention)
    if found != list(range(layers)):
        raise ConversionError(
            f"{type(model).__name__} calls the attention function {len(found)} times for {layers} "
            f"layers; a static bundle needs one call for each layer{_TRY}"
        )


def in_half(model: Any, *, is_own: bool) -> Any:
    """Return the model with float16 weights; a model of the caller is copied.

    Buffers that are not stored, such as rotary frequencies, keep their precision.
    """
    if model.dtype == torch.float16:
        return model
    model = model if is_own else copy.deepcopy(model)
    stored = model.state_dict().keys()
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and name in stored:
            value.data = value.data.to(torch.float16)
            if not bool(value.isfinite().all()):
                raise ConversionError(
                    f"{name} of {type(model).__name__} exceeds the range of float16, the dtype of "
                    f"the Neural Engine{_TRY}"
                )
    return model
