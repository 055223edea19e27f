"""Export the steps of a generative model and stage them as entrypoints of one converter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.export import Dim
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ..capture.prepare import prepare
from ..converter import TorchConverter, capture_rules
from ..errors import ConversionError
from . import checking
from .checking import Check
from .entrypoints import CrossStep, Encode, Pair, Step, layer_names
from .pretranspose import arrange_weights
from .program import Description, token_ids

# The description of a program, and the check that it must pass if `verify` is set.
Staged: TypeAlias = "tuple[Description, Check | None]"

EXAMPLE_LENGTH = 3  # tokens of an example input with a dynamic length


@dataclass(frozen=True)
class Options:
    """Sizes of the program, and options of its conversion."""

    batch: int
    length: int
    source: int
    verify: bool
    turn_weights: bool


def decoder(staging: TorchConverter, model: Any, options: Options) -> Staged:
    """Stage `prefill` and `decode` of a model without an encoder."""
    _check_positions(model, "max_length", options.length)
    first = model(input_ids=_tokens(options.batch, 1), use_cache=True)
    step = Step(
        model, key_value_pairs(model, getattr(first, "past_key_values", None)), options.length
    )
    programs = {
        entrypoint: _capture(staging, step, (tokens, _position()), (shape, None))
        for entrypoint, tokens, shape in _steps(options)
    }
    vocabulary = first.logits.shape[-1]
    check = None
    if options.verify:
        tokens = checking.trial(options.batch, options.length, vocabulary)
        logits = model(input_ids=tokens, use_cache=False).logits
        check = Check(model, programs, tokens, logits, _in_float32(model, {"input_ids": tokens}))
    arrange_weights(programs.values(), turned=options.turn_weights, embeddings=True)
    for entrypoint, program in programs.items():
        staging.add_exported_program(program, None, ["logits"], step.states, entrypoint)
    return _description(model, options, vocabulary), check


def encoder_decoder(staging: TorchConverter, model: Any, options: Options) -> Staged:
    """Stage `encode`, `prefill` and `decode` of a model with an encoder."""
    _check_positions(model, "max_length", options.length)
    source = _Source.of(model, options)
    first = model(
        **{source.name: source.example}, decoder_input_ids=_tokens(options.batch, 1), use_cache=True
    )
    cache = first.past_key_values
    own, crossed = (
        key_value_pairs(model, one)
        for one in (cache.self_attention_cache, cache.cross_attention_cache)
    )
    encoded = [one for pair in crossed for one in pair]
    encode = _capture(staging, Encode(model, len(crossed)), source.inputs, source.shapes)
    step = CrossStep(model, own, options.length)
    extra_inputs = (encoded, *source.inputs[1:])
    shapes = ([source.crossed] * len(encoded), *source.shapes[1:])
    programs = {
        entrypoint: _capture(
            staging, step, (tokens, _position(), *extra_inputs), (shape, None, *shapes)
        )
        for entrypoint, tokens, shape in _steps(options)
    }
    vocabulary = first.logits.shape[-1]
    check = None
    if options.verify:
        feeds = dict(zip([source.name, *source.mask], source.inputs, strict=True))
        encoder = checking.Encoded(encode, feeds, encoded)
        tokens = checking.trial(options.batch, options.length, vocabulary)
        given = {source.name: source.example, "decoder_input_ids": tokens}
        logits = model(**given, use_cache=False).logits
        exact = _in_float32(model, given)
        check = Check(model, programs, tokens, logits, exact, extra_inputs, encoder)
    arrange_weights([encode, *programs.values()], turned=options.turn_weights, embeddings=True)
    names = layer_names(("cross_keys", "cross_values"), len(crossed))
    _stage_with_encoder(staging, encode, programs, source, names, step.states)
    description = _description(
        model,
        options,
        vocabulary,
        source=source.name,
        source_shape=(options.source,) if source.mask else tuple(source.example.shape[1:]),
        start_token_id=_start(model),
    )
    return description, check


def _stage_with_encoder(
    staging: TorchConverter,
    encode: torch.export.ExportedProgram,
    programs: Mapping[str, torch.export.ExportedProgram],
    source: _Source,
    names: list[str],
    states: Any,
) -> None:
    """Stage the encoder, then the steps, which take what it returns."""
    staging.add_exported_program(encode, [source.name, *source.mask], names, None, "encode")
    inputs = ["input_ids", "position", *names, *source.mask]
    for entrypoint, program in programs.items():
        staging.add_exported_program(program, inputs, ["logits"], states, entrypoint)


@dataclass(frozen=True)
class _Source:
    """The input of an encoder: a dynamic number of tokens and their mask, or fixed features."""

    name: str
    example: Tensor
    length: Any  # the dynamic number of tokens, or None

    @classmethod
    def of(cls, model: Any, options: Options) -> _Source:
        if model.main_input_name == "input_ids":
            _check_positions(model, "max_source_length", options.source)
            length = Dim("source", min=2, max=options.source)
            return cls("input_ids", _tokens(options.batch, EXAMPLE_LENGTH), length)
        config = model.config
        if config.model_type == "whisper":
            frames = 2 * config.max_source_positions  # the encoder's convolutions halve them
            shape = (options.batch, config.num_mel_bins, frames)
            return cls("input_features", torch.zeros(shape, dtype=model.dtype), None)
        raise ConversionError(
            f"{type(model).__name__} encodes {model.main_input_name!r}; only text encoders and "
            "Whisper are supported\n  try   call coreai_torch.convert(model.get_encoder(), args)"
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


def _steps(options: Options) -> list[tuple[str, Tensor, Any]]:
    """Return the name of each step, example tokens, and the dynamic sizes of the tokens.

    `prefill` takes at least two tokens, because torch specializes on a length of one.
    """
    length = Dim("length", min=2, max=options.length)
    return [
        ("prefill", _tokens(options.batch, EXAMPLE_LENGTH), {1: length}),
        ("decode", _tokens(options.batch, 1), None),
    ]


def _tokens(batch: int, length: int) -> Tensor:
    return torch.zeros(batch, length, dtype=torch.long)


def _position() -> Tensor:
    return torch.zeros(1, dtype=torch.long)


def _capture(
    staging: TorchConverter, module: torch.nn.Module, args: Any, shapes: Any
) -> torch.export.ExportedProgram:
    return prepare(module, args, None, shapes, rules=capture_rules(staging)).program


def key_value_pairs(model: Any, cache: Any) -> list[Pair]:
    """Return the keys and values of a cache; raise for any other kind of cache.

    Layers of other classes store more than keys and values, which would be lost.
    """
    layers = getattr(cache, "layers", [])
    known = (DynamicLayer, DynamicSlidingWindowLayer)
    other = sorted({type(one).__name__ for one in layers if type(one) not in known})
    if other or not layers:
        raise _unknown_cache(model, ", ".join(other) or "an unknown kind of cache")
    return [(layer.keys, layer.values) for layer in layers]


_LINEAR = (
    "LinearAttentionLayer",
    "LinearAttentionAndFullAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
)


def split_layers(model: Any, cache: Any) -> tuple[list[Pair], Any]:
    """Return the keys and values of a cache, and the cache itself if it has linear layers.

    Raise for any other kind of cache.
    """
    layers = getattr(cache, "layers", [])
    if not layers:
        raise unsupported_cache(
            type(model).__name__,
            "does not store keys and values in a cache of transformers, but the engine needs them",
        )
    if not any(type(one).__name__ in _LINEAR for one in layers):
        return key_value_pairs(model, cache), None
    known = (*_LINEAR, "DynamicLayer", "DynamicSlidingWindowLayer")
    if other := sorted({type(one).__name__ for one in layers} - set(known)):
        raise _unknown_cache(model, ", ".join(other))
    return [(one.keys, one.values) for one in layers if hasattr(one, "keys")], cache


def _unknown_cache(model: Any, kind: str) -> ConversionError:
    only = "only keys and values of attention can be states of the program"
    return unsupported_cache(type(model).__name__, f"stores its state in {kind}; {only}")


def unsupported_cache(name: str, reason: str) -> ConversionError:
    """Return the error for a model whose cache cannot be converted."""
    return ConversionError(
        f"{name} {reason}\n"
        "  try   call coreai_torch.convert(model, args) with use_cache=False for full sequences"
    )


def _check_positions(model: Any, what: str, length: int) -> None:
    """Raise if the length exceeds the model's table of positions."""
    config = model.config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "max_target_positions"):
        most = getattr(config, name, None)
        if most is not None and length > most:
            raise ConversionError(
                f"{what} is {length}, but {type(model).__name__} has {most} positions "
                f"({name})\n  try   pass {what}={most}, or use a model with more positions"
            )


def _in_float32(model: Any, inputs: dict[str, Tensor]) -> Callable[[], Tensor]:
    """Return a function that computes the logits of a copy of the model in float32."""

    def logits() -> Tensor:
        given = {n: x.float() if x.is_floating_point() else x for n, x in inputs.items()}
        with torch.no_grad():
            exact: Tensor = copy.deepcopy(model).float()(**given, use_cache=False).logits
        return exact

    return logits


def _start(model: Any) -> int | None:
    """Return the decoder's first token, with the same precedence as transformers."""
    config = model.generation_config
    start = config.decoder_start_token_id
    token: int | None = config.bos_token_id if start is None else start
    return token


def _description(model: Any, options: Options, vocabulary: int, **more: Any) -> Description:
    config = model.generation_config
    return Description(
        batch_size=options.batch,
        max_length=options.length,
        vocabulary=vocabulary,
        eos_token_ids=token_ids(config.eos_token_id),
        pad_token_id=config.pad_token_id,
        **more,
    )
