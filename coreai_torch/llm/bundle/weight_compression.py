"""Compression of a decoder before its export: presets, a measured mix, or a YAML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ...compression import CompressionReport, compress
from ...errors import ConversionError

PRESETS = ("4bit", "8bit", "mixed", "none")
_SENSITIVE_PART = 4  # one of this many layers keeps 8 bits in the mix
_TEXT = (
    "The quick brown fox jumps over the lazy dog. In 1969, people first walked on the Moon; the "
    "journey took about four days. To bake bread, mix flour, water, salt and yeast, wait, and "
    "bake it at 220 degrees. def add(a, b): return a + b. How are you? I am fine, thank you."
)


@dataclass(frozen=True)
class Spec:
    """A scheme of `coreai_torch.compress` with its block size."""

    scheme: str
    block_size: int | None = None


FOUR, EIGHT = Spec("int4", 32), Spec("int8")
Plan: TypeAlias = Callable[[str, nn.Module], Spec | None]


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


def read_recipe(path: Path) -> tuple[Plan, list[Spec]]:
    """Read a YAML file in the form of coreai-opt; raise for settings that are not supported."""
    import yaml

    content = yaml.safe_load(path.read_text("utf-8"))
    kinds = {"quantization_config": _quantized, "kmeans_palettization_config": _palettized}
    found = [kind for kind in kinds if isinstance(content, Mapping) and kind in content]
    if len(found) != 1:
        raise _unsupported(path, f"it needs exactly one of {', '.join(kinds)}")
    extra = content.get("coreai_models") or {}
    if extra.get("calibrate_activations"):
        raise _unsupported(path, "activations are not compressed: calibrate_activations is set")
    body, read = content[found[0]], kinds[found[0]]
    unknown = set(body) - {"global_config", "module_type_configs", "module_name_configs"}
    unknown -= {"execution_mode"}
    if unknown:
        raise _unsupported(path, f"unknown keys {', '.join(sorted(unknown))}")
    default = read(path, body.get("global_config"))
    types = {key: read(path, one) for key, one in (body.get("module_type_configs") or {}).items()}
    names = {key: read(path, one) for key, one in (body.get("module_name_configs") or {}).items()}

    def plan(module: str, layer: nn.Module) -> Spec | None:
        for pattern, spec in names.items():
            if re.fullmatch(pattern, module):
                return spec
        for kind in type(layer).__mro__:
            for key, spec in types.items():
                if key in (kind.__name__, f"{kind.__module__}.{kind.__name__}"):
                    return spec
        return default

    specs = [spec for spec in (default, *types.values(), *names.values()) if spec is not None]
    return plan, specs


def _unsupported(path: Path, reason: str) -> ConversionError:
    return ConversionError(
        f"{path} cannot be used: {reason}\n"
        "  try   describe weights only, as op_state_spec.weight with dtype and granularity"
    )


def _weight(path: Path, config: Any) -> Mapping[str, Any] | None:
    """Return the description of the weight; None leaves the layer unchanged."""
    if config is None:
        return None
    for name in ("op_input_spec", "op_output_spec"):
        if config.get(name):
            raise _unsupported(path, f"activations are not compressed: {name} is set")
    weight = (config.get("op_state_spec") or {}).get("weight")
    if weight is not None and not isinstance(weight, Mapping):
        raise _unsupported(path, f"the weight is {weight!r}")
    return weight


def _quantized(path: Path, config: Any) -> Spec | None:
    weight = _weight(path, config)
    if weight is None:
        return None
    dtype = weight.get("dtype")
    if dtype not in ("int4", "int8", "uint4", "uint8"):
        raise _unsupported(path, f"dtype {dtype!r} is unknown")
    granularity = weight.get("granularity") or {}
    # A scale for each output is at least as precise as one for the complete weight.
    if granularity.get("type", "per_channel") in ("per_tensor", "per_channel"):
        return Spec(dtype)
    if granularity["type"] != "per_block" or not isinstance(granularity.get("block_size"), int):
        raise _unsupported(path, f"granularity {dict(granularity)!r} is unknown")
    return Spec(dtype, granularity["block_size"])


def _palettized(path: Path, config: Any) -> Spec | None:
    weight = _weight(path, config)
    if weight is None:
        return None
    granularity = weight.get("granularity") or {}
    if weight.get("n_bits") not in range(1, 9):
        raise _unsupported(path, f"n_bits {weight.get('n_bits')!r} is not from 1 to 8")
    if granularity.get("type", "per_tensor") == "per_tensor":
        return Spec(f"palettize{weight['n_bits']}")
    if granularity["type"] != "per_grouped_channel":
        raise _unsupported(path, f"granularity {dict(granularity)!r} is unknown")
    return Spec(f"palettize{weight['n_bits']}", granularity.get("group_size"))
