"""Exports the steps of a model and stages them as entrypoints of one converter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim
from transformers.cache_utils import DynamicLayer

from ..capture.exporting import decomposed, exported
from ..converter import TorchConverter, get_decomp_table
from ..errors import ConversionError
from .entrypoints import Pair, Step
from .program import Description

SEVERAL = 3  # tokens of an example whose length is left open


@dataclass(frozen=True)
class Sizes:
    """What the program is made for."""

    batch: int
    length: int


def decoder(staging: TorchConverter, model: Any, sizes: Sizes) -> Description:
    """Stage `prefill` and `decode` of a model without an encoder."""
    _check_positions(model, sizes.length)
    made = _probed(model, input_ids=_tokens(sizes.batch, 1))
    step = Step(model, _pairs(model, made.past_key_values), sizes.length)
    position = torch.zeros(1, dtype=torch.long)
    for entrypoint, tokens, open_ in _steps(sizes):
        shapes = {"input_ids": open_, "position": None}
        program = _exported(step, (tokens, position), shapes)
        staging.add_exported_program(program, None, ["logits"], step.states, entrypoint)
    return _description(model, sizes, made.logits.shape[-1])


def _steps(sizes: Sizes) -> list[tuple[str, Tensor, Any]]:
    """Each step with an example, and the axes of it that are left open.

    A length of one is what torch specializes on, so that `prefill` begins at two.
    """
    length = Dim("length", min=2, max=sizes.length)
    return [
        ("prefill", _tokens(sizes.batch, SEVERAL), {1: length}),
        ("decode", _tokens(sizes.batch, 1), None),
    ]


def _tokens(batch: int, length: int) -> Tensor:
    return torch.zeros(batch, length, dtype=torch.long)


def _exported(module: torch.nn.Module, args: Any, shapes: Any) -> torch.export.ExportedProgram:
    return decomposed(exported(module, args, None, shapes), get_decomp_table())


def _probed(model: Any, **inputs: Any) -> Any:
    """One token through the model: how many layers cache what, and in which shapes."""
    return model(**inputs, use_cache=True, return_dict=True)


def _pairs(model: Any, held: Any) -> list[Pair]:
    """Keys and values of one token; refuses what remembers in another way."""
    layers = held.layers if hasattr(held, "layers") else [held]
    other = sorted({type(one).__name__ for one in layers if not _caches_keys(one)})
    if other:
        raise ConversionError(
            f"{type(model).__name__} remembers in {', '.join(other)}; only keys and values of "
            "attention can be a state of the program\n"
            "  try   coreai_torch.convert(model, args) with use_cache=False, for whole sequences"
        )
    return [(layer.keys, layer.values) for layer in layers]


def _caches_keys(layer: Any) -> bool:
    """Exactly that: kinds that add something to it are not known to do without."""
    known = (DynamicLayer, *(c for c in DynamicLayer.__subclasses__() if "Sliding" in c.__name__))
    return type(layer) in known and layer.keys is not None


def _check_positions(model: Any, length: int) -> None:
    """Beyond its last position a table of positions has nothing to read."""
    config = model.config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "max_target_positions"):
        most = getattr(config, name, None)
        if most is not None and length > most:
            raise ConversionError(
                f"max_length is {length}, {type(model).__name__} has {most} positions "
                f"({name})\n  try   max_length={most}, or a model for more"
            )


def _description(model: Any, sizes: Sizes, vocabulary: int, **more: Any) -> Description:
    config = model.generation_config
    ends: int | Sequence[int] | None = config.eos_token_id
    return Description(
        batch_size=sizes.batch,
        max_length=sizes.length,
        vocabulary=vocabulary,
        eos_token_ids=() if ends is None else (ends,) if isinstance(ends, int) else tuple(ends),
        pad_token_id=config.pad_token_id,
        **more,
    )
