"""Compression of a decoder before its export: presets, a measured mix, or a YAML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...compression import CompressionReport, compress
from ...compression.recipe import LayerPlan as Plan
from ...compression.recipe import read_recipe as read_recipe
from ...compression.specs import Spec
from ...errors import ConversionError

PRESETS = ("4bit", "8bit", "mixed", "none")
_SENSITIVE_PART = 4  # one of this many layers keeps 8 bits in the mix
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
        sensitive = _sensitive_layers(model, tokenizer)
        return _apply(model, _mixed(sensitive), [FOUR, EIGHT])
    path = Path(compression)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise ConversionError(
            f"unknown compression {name!r}\n"
            f"  try   pass one of {', '.join(PRESETS)}, or the path of a YAML file"
        )
    plan, specs = read_recipe(path)
    return _apply(model, plan, specs)


def _apply(model: nn.Module, plan: Plan, specs: list[Spec]) -> list[CompressionReport]:
    def left_out(spec: Spec) -> Callable[[str, nn.Module], bool]:
        return lambda path, layer: plan(path, layer) != spec

    return [
        compress(model, spec.scheme, block_size=spec.block_size, skip=left_out(spec))
        for spec in dict.fromkeys(specs)
    ]


def _mixed(sensitive: set[str]) -> Plan:
    """Return 8 bits for sensitive layers, the embedding and the head, 4 bits for the others."""

    def plan(path: str, layer: nn.Module) -> Spec:
        inside = any(path == one or path.startswith(f"{one}.") for one in sensitive)
        return (
            EIGHT if inside or isinstance(layer, nn.Embedding) or ".layers." not in path else FOUR
        )

    return plan


def _sensitive_layers(model: Any, tokenizer: Any) -> set[str]:
    """Return the decoder layers whose 4-bit weights change the predictions most.

    Each layer is rounded alone; the change is the mean divergence of the predicted tokens.
    """
    layers = {path: layer for path, layer in model.named_modules() if _is_block(path)}
    if not layers:
        return set()
    tokens = torch.tensor([tokenizer(_TEXT).input_ids])
    want = _log_probabilities(model, tokens)
    change = {}
    for path, layer in layers.items():
        with _rounded(layer):
            got = _log_probabilities(model, tokens)
        change[path] = float((want.exp() * (want - got)).sum(-1).mean())
    count = max(1, len(layers) // _SENSITIVE_PART)
    return set(sorted(change, key=lambda path: change[path], reverse=True)[:count])


def _is_block(path: str) -> bool:
    return re.search(r"(^|\.)(layers|h|blocks)\.\d+$", path) is not None


def _log_probabilities(model: Any, tokens: Tensor) -> Tensor:
    return torch.as_tensor(
        model(input_ids=tokens, use_cache=False).logits[0].float().log_softmax(-1)
    )


@contextmanager
def _rounded(layer: nn.Module) -> Iterator[None]:
    """Round the weights of linear layers to 4 bits in blocks of 32 for a while."""
    linear = [one for one in layer.modules() if isinstance(one, nn.Linear)]
    kept = [one.weight.data for one in linear]
    for one in linear:
        one.weight.data = _round_to_four_bits(one.weight.data)
    try:
        yield
    finally:
        for one, weight in zip(linear, kept, strict=True):
            one.weight.data = weight


def _round_to_four_bits(weight: Tensor) -> Tensor:
    block = 32 if weight.shape[1] % 32 == 0 else weight.shape[1]
    blocks = weight.float().reshape(weight.shape[0], -1, block)
    scale = (blocks.abs().amax(-1, keepdim=True) / 7).clamp(min=1e-12)
    rounded = (blocks / scale).round().clamp(-8, 7) * scale
    return rounded.reshape(weight.shape).to(weight.dtype)
