"""`convert`: a `transformers` model to a program with one entry point for each step."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from typing import Any

import torch

from ..converter import TorchConverter
from ..errors import ConversionError
from ..progress import stages
from .program import GenerationProgram

SHORTEST = 4  # tokens in the cache; below that the prompt's length cannot be dynamic


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
    """Convert a `transformers` model that can `generate`, with its cache as state.

    The program has the entry points `prefill` (a prompt of 2 or more tokens) and `decode` (one
    token), and `encode` if the model has an encoder. They share weights and states. The program
    and its cache use the model's dtype; the model is not changed. Raises `ConversionError` if the
    model stores anything but keys and values between steps, or has fewer positions than
    `max_length`.

    ```text
    program = llm.convert(AutoModelForCausalLM.from_pretrained("..."), max_length=2048)
    program.save_asset("model.aimodel")
    ```

    Args:
        model: the model with its head, in evaluation mode, such as a `LlamaForCausalLM`.
        max_length: the size of the cache: prompt and generated tokens together.
        batch_size: the number of sequences that are generated at once.
        max_source_length: the maximum number of tokens of the encoder; by default `max_length`.
        verify: save the program, run a prefill and decoding steps from the asset, and raise if
            their logits differ from those of the model in torch.
        turn_weights: store the weights of linear layers transposed, as they are used. This makes
            the runtime of Linux several times faster; the conversion needs memory for both.
        recognize: convert norms, rotary embeddings and attention to composites, as in
            `TorchConverter`.
    """
    check_model(model)
    _check_size("batch_size", batch_size, 1)
    _check_size("max_length", max_length, SHORTEST)
    source_length = max_length if max_source_length is None else max_source_length
    _check_size("max_source_length", source_length, SHORTEST)
    from . import export_steps

    options = export_steps.Options(batch_size, max_length, source_length, verify, turn_weights)
    has_encoder = model.config.is_encoder_decoder
    converter = TorchConverter(recognize=recognize)
    with torch.no_grad(), stages() as stage:
        with stage("exporting"):
            add_steps = export_steps.encoder_decoder if has_encoder else export_steps.decoder
            description, check = add_steps(converter, model, options)
        with stage("converting", live=False):
            program = GenerationProgram.of(converter.to_coreai(), description)
        with stage("optimizing"):
            program.optimize()
        if check is not None:
            with stage("verifying"):
                check(program)
    return program


def check_model(model: Any) -> None:
    """Raise unless the model can generate and is ready to be exported."""
    if find_spec("transformers") is None:
        raise ConversionError(
            "coreai_torch.llm.convert needs transformers, which is not installed\n"
            "  try   pip install transformers"
        )
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel) or not model.can_generate():
        raise ConversionError(
            f"{type(model).__name__} is not a transformers model that can generate\n"
            "  try   pass a class with a head (LlamaForCausalLM, not LlamaModel), or call "
            "coreai_torch.convert(model, args) for any other model"
        )
    if model.training:
        raise ConversionError(
            f"{type(model).__name__} is in training mode, so dropout is active\n"
            "  try   call model.eval()"
        )
    if model.device.type != "cpu":
        raise ConversionError(
            f"{type(model).__name__} is on {model.device}, conversion needs it on the CPU\n"
            "  try   call model.to('cpu')"
        )


def _check_size(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ConversionError(
            f"{name} is {value!r}, it must be an integer of at least {least}\n"
            f"  try   pass {name}={least} or more"
        )
