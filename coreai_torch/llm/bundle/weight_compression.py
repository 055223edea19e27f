"""Compression of a decoder before its export: presets, a measured mix, or a YAML file."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...compression import CompressionReport, compress, sensitivity
from ...compression.picking import options, pick
from ...compression.recipe import LayerPlan as Plan
from ...compression.recipe import read_recipe as read_recipe
from ...compression.specs import Spec
from ...compression.weights import find_weights
from ...errors import ConversionError
from .metadata import RECIPE_KEY, BundleMetadata

PRESETS = ("4bit", "8bit", "mixed", "none")
_SENSITIVE_PART = 4  # one of this many bytes that 8 bits cost more is spent in the mix
_TEXT = (
    "The quick brown fox jumps over the lazy dog. In 1969, people first walked on the Moon; the "
    "journey took about four days. To bake bread, mix flour, water, salt and yeast, wait, and "
    "bake it at 220 degrees. def add(a, b): return a + b. How are you? I am fine, thank you."
)


FOUR, EIGHT = Spec("int4", 32), Spec("int8")


def label(compression: str | Path | None) -> str | None:
    """Return the name that a bundle records: the preset or the stem of the file."""
    if compression is None or str(compression) == "none":
        return None
    return str(compression) if str(compression) in PRESETS else Path(compression).stem


def compress_decoder(
    model: Any, compression: str | Path, tokenizer: Any
) -> list[CompressionReport]:
    """Compress the weights of a model in place; return a report for each scheme."""
    name = str(compression)
    if name == "none":
        return []
    if name in ("4bit", "8bit"):
        spec = FOUR if name == "4bit" else EIGHT
        return _apply(model, lambda path, layer: spec, [spec])
    if name == "mixed":
        return [compress(model, _mixed(model, tokenizer))]
    path = Path(compression)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise ConversionError(
            f"unknown compression {name!r}\n"
            f"  try   pass one of {', '.join(PRESETS)}, or the path of a YAML file"
        )
    plan, specs = read_recipe(path)
    reports = _apply(model, plan, specs)
    if not any(report.compressed for report in reports):
        raise ConversionError(
            f"{path} compresses no weight of {type(model).__name__}\n"
            "  try   correct its names and types; names are regular expressions that match the "
            "complete path of a layer, such as 'model.layers.0.mlp.up_proj'"
        )
    return reports


def recipe_text(compression: str | Path | None) -> dict[str, str]:
    """Return what a bundle records of a YAML file, so that its model can be compressed again."""
    if label(compression) is None or str(compression) in PRESETS:
        return {}
    return {RECIPE_KEY: Path(str(compression)).read_text("utf-8")}


def is_known(metadata: BundleMetadata) -> bool:
    """Return whether the compression of a bundle can be repeated."""
    return metadata.compression in (None, *PRESETS) or RECIPE_KEY in metadata.user_data


def compressed_like(model: Any, metadata: BundleMetadata, tokenizer: Any) -> Any:
    """Return a copy of the model with the compression of a bundle; the model without any."""
    if metadata.compression is None:
        return model
    model = copy.deepcopy(model)
    part = decoder_of(model)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        compression: str | Path = metadata.compression
        if RECIPE_KEY in metadata.user_data:
            compression = Path(folder) / "recipe.yaml"
            compression.write_text(metadata.user_data[RECIPE_KEY], "utf-8")
        compress_decoder(part, compression, tokenizer)
    return model


def decoder_of(model: Any) -> Any:
    """Return the part of a model that is compressed: not the image encoder."""
    from .vision.families import is_vision_language, language_part

    return language_part(model) if is_vision_language(model.config) else model


def _apply(model: nn.Module, plan: Plan, specs: list[Spec]) -> list[CompressionReport]:
    def left_out(spec: Spec) -> Callable[[str, nn.Module], bool]:
        return lambda path, layer: plan(path, layer) != spec

    return [
        compress(model, spec.scheme, block_size=spec.block_size, skip=left_out(spec))
        for spec in dict.fromkeys(specs)
    ]


def _mixed(model: Any, tokenizer: Any) -> dict[str, str | Spec | None]:
    """Return schemes: 4 bits for the weights of layers whose rounding changes predictions least.

    A quarter of the bytes that 8 bits cost more are spent on the other weights. Embedding and head
    have 8 bits. Each weight is rounded alone; the change is the mean divergence of the predicted
    tokens.
    """
    tokens = torch.tensor([tokenizer(_TEXT).input_ids])
    with torch.no_grad():
        want = _log_probabilities(model, tokens)

    def divergence(changed: nn.Module) -> float:
        return float((want.exp() * (want - _log_probabilities(changed, tokens))).sum(-1).mean())

    table = sensitivity(model, metric=divergence, schemes=[FOUR], only=_is_in_block)
    sizes = {w.name: _bytes_in_eight_bits(w.value) for w in find_weights(model)}
    choices = options(table, {row.weight: sizes[row.weight] for row in table.rows})
    most = sum(sizes[row.weight] for row in table.rows)
    least = sum(row.bytes for row in table.rows)
    choice = pick(choices, target_bytes=least + (most - least) // _SENSITIVE_PART)
    four = [name for name, option in choice.items() if option.row is not None]
    return {**dict.fromkeys(four, FOUR), "*": EIGHT}


def _bytes_in_eight_bits(weight: Tensor) -> int:
    outputs = weight.shape[:-1].numel()  # nearly right for weights [in, out]
    return int(weight.numel() + outputs * weight.element_size())


def _is_in_block(path: str, layer: nn.Module) -> bool:
    return re.search(r"(^|\.)(layers|h|blocks)\.\d+\.", path) is not None


def _log_probabilities(model: Any, tokens: Tensor) -> Tensor:
    return torch.as_tensor(
        model(input_ids=tokens, use_cache=False).logits[0].float().log_softmax(-1)
    )
