"""`convert`: a model of `transformers` to a program with an entrypoint for each step."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from typing import Any

import torch

from ..converter import TorchConverter
from ..errors import ConversionError
from ..progress import stages
from .program import GenerationProgram

SHORTEST = 4  # places in a cache: fewer leave no lengths of prompts open


def convert(
    model: torch.nn.Module,
    max_length: int,
    *,
    batch_size: int = 1,
    max_source_length: int | None = None,
    verify: bool = True,
    turn_weights: bool = True,
    recognize: bool | Collection[str] = True,
) -> GenerationProgram:
    """Convert a model of `transformers` that can `generate`, with its cache as state.

    The program has the entrypoints `prefill` (a prompt of any length from 2 on) and `decode` (one
    token), and `encode` if the model has an encoder; they share weights and states. Program and
    cache have the model's dtype; the model is not changed. A `ConversionError` tells what cannot
    be: it remembers in something else than keys and values, or has fewer positions.

    ```text
    program = llm.convert(AutoModelForCausalLM.from_pretrained("..."), max_length=2048)
    program.save_asset("model.aimodel")
    ```

    Args:
        model: with its head and in evaluation mode, such as a `LlamaForCausalLM`.
        max_length: the places of the cache, for prompt and generated tokens together.
        batch_size: how many sequences are generated at once.
        max_source_length: the most tokens that an encoder takes; by default `max_length`.
        verify: torch runs what was exported beside the model, and other logits are refused.
        turn_weights: weights of linear layers are stored transposed, as they are used. The run
            time of Linux is several times faster then; the conversion holds them twice.
        recognize: norms, rotations and attention become composites, as in `TorchConverter`.
    """
    _check_model(model)
    _check_size("batch_size", batch_size, 1)
    _check_size("max_length", max_length, SHORTEST)
    source_length = max_length if max_source_length is None else max_source_length
    _check_size("max_source_length", source_length, SHORTEST)
    from . import export_steps

    wish = export_steps.Wish(batch_size, max_length, source_length, verify, turn_weights)
    has_encoder = model.config.is_encoder_decoder
    staged = TorchConverter(recognize=recognize)
    with torch.no_grad(), stages() as stage:
        with stage("exporting"):
            stage_all = export_steps.encoder_decoder if has_encoder else export_steps.decoder
            description = stage_all(staged, model, wish)
        with stage("converting", live=False):
            program = GenerationProgram.of(staged.to_coreai(), description)
        with stage("optimizing"):
            program.optimize()
    return program


def _check_model(model: Any) -> None:
    """A model that generates, ready to be exported."""
    if find_spec("transformers") is None:
        raise ConversionError(
            "coreai_torch.llm converts models of transformers, which is not installed\n"
            "  try   pip install transformers"
        )
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel) or not model.can_generate():
        raise ConversionError(
            f"{type(model).__name__} is no model of transformers that can generate\n"
            "  try   the class with a head: LlamaForCausalLM instead of LlamaModel, or "
            "coreai_torch.convert(model, args) for any other model"
        )
    if model.training:
        raise ConversionError(
            f"{type(model).__name__} is in training mode, its dropout is on\n  try   model.eval()"
        )
    if model.device.type != "cpu":
        raise ConversionError(
            f"{type(model).__name__} lies on {model.device}\n  try   model.to('cpu')"
        )


def _check_size(name: str, given: Any, least: int) -> None:
    if not isinstance(given, int) or given < least:
        raise ConversionError(f"{name} is {given!r}\n  try   an integer of {least} or more")
