"""Exports the steps of a model and stages them as entrypoints of one converter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ..capture.prepare import prepare
from ..converter import TorchConverter, capture_rules
from ..errors import ConversionError
from . import checking
from .entrypoints import CrossStep, Encode, Pair, Step, layer_names
from .pretranspose import transpose_weights
from .program import Description

SEVERAL = 3  # tokens of an example whose length is left open


@dataclass(frozen=True)
class Wish:
    """What the program is made for, and how."""

    batch: int
    length: int
    source: int
    verify: bool
    turn_weights: bool


def decoder(staging: TorchConverter, model: Any, wish: Wish) -> Description:
    """Stage `prefill` and `decode` of a model without an encoder."""
    _check_positions(model, "max_length", wish.length)
    made = model(input_ids=_tokens(wish.batch, 1), use_cache=True)
    step = Step(model, _pairs(model, getattr(made, "past_key_values", None)), wish.length)
    programs = {
        entrypoint: _capture(staging, step, (tokens, _position()), (open_, None))
        for entrypoint, tokens, open_ in _steps(wish)
    }
    vocabulary = made.logits.shape[-1]
    if wish.verify:
        tokens = checking.trial(wish.batch, wish.length, vocabulary)
        want = model(input_ids=tokens, use_cache=False).logits[:, -1]
        checking.check_steps(model, programs, tokens, (), want)
    if wish.turn_weights:
        transpose_weights(programs.values())
    for entrypoint, program in programs.items():
        staging.add_exported_program(program, None, ["logits"], step.states, entrypoint)
    return _description(model, wish, vocabulary)


def encoder_decoder(staging: TorchConverter, model: Any, wish: Wish) -> Description:
    """Stage `encode`, `prefill` and `decode` of a model with an encoder."""
    _check_positions(model, "max_length", wish.length)
    source = _Source.of(model, wish)
    made = model(
        **{source.name: source.example}, decoder_input_ids=_tokens(wish.batch, 1), use_cache=True
    )
    held = made.past_key_values
    own, crossed = (
        _pairs(model, one) for one in (held.self_attention_cache, held.cross_attention_cache)
    )
    given = [one for pair in crossed for one in pair]
    encode = _capture(staging, Encode(model, len(crossed)), source.inputs, source.shapes)
    step = CrossStep(model, own, wish.length)
    beside = (given, *source.inputs[1:])
    shapes = ([source.crossed] * len(given), *source.shapes[1:])
    programs = {
        entrypoint: _capture(staging, step, (tokens, _position(), *beside), (open_, None, *shapes))
        for entrypoint, tokens, open_ in _steps(wish)
    }
    vocabulary = made.logits.shape[-1]
    if wish.verify:
        tokens = checking.trial(wish.batch, wish.length, vocabulary)
        whole = model(**{source.name: source.example}, decoder_input_ids=tokens, use_cache=False)
        checking.check_encoded(model, encode.module()(*source.inputs), given)
        checking.check_steps(model, programs, tokens, beside, whole.logits[:, -1])
    if wish.turn_weights:
        transpose_weights([encode, *programs.values()])
    names = layer_names(("cross_keys", "cross_values"), len(crossed))
    staging.add_exported_program(encode, [source.name, *source.mask], names, None, "encode")
    inputs = ["input_ids", "position", *names, *source.mask]
    for entrypoint, program in programs.items():
        staging.add_exported_program(program, inputs, ["logits"], step.states, entrypoint)
    return _description(
        model,
        wish,
        vocabulary,
        source=source.name,
        source_shape=(wish.source,) if source.mask else tuple(source.example.shape[1:]),
        start_token_id=_start(model),
    )


@dataclass(frozen=True)
class _Source:
    """What an encoder takes: tokens of any number with their mask, or features of one shape."""

    name: str
    example: Tensor
    length: Any  # of tokens

    @classmethod
    def of(cls, model: Any, wish: Wish) -> _Source:
        if model.main_input_name == "input_ids":
            _check_positions(model, "max_source_length", wish.source)
            length = Dim("source", min=2, max=wish.source)
            return cls("input_ids", _tokens(wish.batch, SEVERAL), length)
        config = model.config
        if config.model_type == "whisper":
            frames = 2 * config.max_source_positions  # the encoder's convolutions halve them
            shape = (wish.batch, config.num_mel_bins, frames)
            return cls("input_features", torch.zeros(shape, dtype=model.dtype), None)
        raise ConversionError(
            f"{type(model).__name__} encodes {model.main_input_name!r}; encoders of text and "
            "Whisper's are known\n  try   coreai_torch.convert(model.get_encoder(), args)"
        )

    @property
    def mask(self) -> list[str]:
        return ["attention_mask"] if self.length else []

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.example, torch.ones_like(self.example)) if self.length else (self.example,)

    @property
    def crossed(self) -> Any:
        return {2: self.length} if self.length else None

    @property
    def shapes(self) -> tuple[Any, ...]:
        return ({1: self.length},) * 2 if self.length else (None,)


def _steps(wish: Wish) -> list[tuple[str, Tensor, Any]]:
    """Each step with an example, and the axes of it that are left open.

    A length of one is what torch specializes on, so that `prefill` begins at two.
    """
    length = Dim("length", min=2, max=wish.length)
    return [
        ("prefill", _tokens(wish.batch, SEVERAL), {1: length}),
        ("decode", _tokens(wish.batch, 1), None),
    ]


def _tokens(batch: int, length: int) -> Tensor:
    return torch.zeros(batch, length, dtype=torch.long)


def _position() -> Tensor:
    return torch.zeros(1, dtype=torch.long)


def _capture(
    staging: TorchConverter, module: torch.nn.Module, args: Any, shapes: Any
) -> torch.export.ExportedProgram:
    return prepare(module, args, None, shapes, rules=capture_rules(staging)).program


def _pairs(model: Any, held: Any) -> list[Pair]:
    """Keys and values of a first step; refuses what remembers in another way.

    Layers of other kinds add to keys and values something that would be lost.
    """
    layers = getattr(held, "layers", [])
    known = (DynamicLayer, DynamicSlidingWindowLayer)
    other = sorted({type(one).__name__ for one in layers if type(one) not in known})
    if other or not layers:
        kind = ", ".join(other) or "a cache of its own kind"
        raise ConversionError(
            f"{type(model).__name__} remembers in {kind}; only keys and values of attention can "
            "be states of the program\n"
            "  try   coreai_torch.convert(model, args) with use_cache=False, for whole sequences"
        )
    return [(layer.keys, layer.values) for layer in layers]


def _check_positions(model: Any, what: str, length: int) -> None:
    """Beyond its last position a table of positions has nothing to read."""
    config = model.config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "max_target_positions"):
        most = getattr(config, name, None)
        if most is not None and length > most:
            raise ConversionError(
                f"{what} is {length}, {type(model).__name__} has {most} positions "
                f"({name})\n  try   {what}={most}, or a model for more"
            )


def _start(model: Any) -> int | None:
    """What the decoder begins with, in the order in which transformers looks for it."""
    config = model.generation_config
    start = config.decoder_start_token_id
    held: int | None = config.bos_token_id if start is None else start
    return held


def _description(model: Any, wish: Wish, vocabulary: int, **more: Any) -> Description:
    config = model.generation_config
    ends: int | Sequence[int] | None = config.eos_token_id
    return Description(
        batch_size=wish.batch,
        max_length=wish.length,
        vocabulary=vocabulary,
        eos_token_ids=() if ends is None else (ends,) if isinstance(ends, int) else tuple(ends),
        pad_token_id=config.pad_token_id,
        **more,
    )
