"""Load a model and its tokenizer from a folder, without the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import ConversionError
from ..program import token_ids

_LISTED = 3  # weights that a message names


def load_model(folder: Path | str, dtype: Any = "auto") -> Any:
    """Load the decoder, or the vision-language model, in a folder.

    Raise if weights are missing: transformers would initialize them with random numbers.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    from .vision.families import is_vision_language

    if not (Path(folder) / "config.json").is_file():
        raise ConversionError(
            f"{folder} is not the folder of a model: config.json is missing\n"
            "  try   pass a folder that save_pretrained wrote, or the model itself"
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = AutoModelForImageTextToText if is_vision_language(config) else AutoModelForCausalLM
        model, info = kind.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # the code of a model may raise anything
        raise ConversionError(
            f"transformers cannot load the model in {folder}: {_sentence(error)}\n"
            "  try   pass a folder that AutoModelForCausalLM.from_pretrained loads"
        ) from error
    missing = sorted(info["missing_keys"]) + sorted(str(one) for one in info["mismatched_keys"])
    if missing:
        names = ", ".join(missing[:_LISTED]) + (", ..." if len(missing) > _LISTED else "")
        raise ConversionError(
            f"{folder} lacks {len(missing)} weights of {type(model).__name__}: {names}\n"
            "  try   download the complete model, or save it again with save_pretrained"
        )
    return model.eval()


def _sentence(error: Exception) -> str:
    """Return the first line of an error, with its type if that is not the message itself."""
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"


def image_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the image processor in a folder, if there is one."""
    settings: dict[str, Any] = {}
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            content = json.loads((folder / name).read_text("utf-8"))
            settings |= content.get("image_processor") or content
    return settings


def read_tokenizer(tokenizer: Any) -> Any:
    """Return a tokenizer, loaded if it is given as a folder."""
    if tokenizer is None:
        raise ConversionError(
            "a bundle needs a tokenizer\n"
            "  try   pass tokenizer=AutoTokenizer.from_pretrained(...), or the model's folder"
        )
    if not isinstance(tokenizer, str | Path):
        if not hasattr(tokenizer, "is_fast"):
            raise ConversionError(
                f"tokenizer is a {type(tokenizer).__name__}\n"
                "  try   pass a fast tokenizer of transformers, or its folder"
            )
        return tokenizer
    from transformers import AutoTokenizer

    try:
        if not Path(tokenizer).is_dir():
            raise OSError("the folder does not exist")
        return AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
    except Exception as error:  # the code of a tokenizer may raise anything
        raise ConversionError(
            f"{tokenizer} contains no tokenizer that transformers can load: {_sentence(error)}\n"
            "  try   pass tokenizer=..., a fast tokenizer or its folder"
        ) from error


def eos_token_ids(model: Any) -> tuple[int, ...]:
    """Return the tokens that end the output of a model."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = model.config.get_text_config(decoder=True).eos_token_id
    return token_ids(ends)
