"""The rows of `transformers` at published sizes, derived from the small rows of the zoo.

A small row replaces the sizes of a configuration. Without these, a configuration has the sizes of
the checkpoint that the library took its defaults from. The depth and the number of experts stay
small: they change neither the sizes of the tensors nor the ops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .row import Row, Tensor, normal, ones, tokens
from .transformers_rows import hf

# Keys whose small value stays: depth, number of experts, and what must agree with them.
_KEPT = {
    "attn_layer_indices",
    "attn_layer_offset",
    "attn_layer_period",
    "backbone_out_indices",
    "block_sizes",
    "conditional_layer",
    "decoder_layers",
    "decoder_num_hidden_layers",
    "depth",
    "depths",
    "encoder_layers",
    "encoder_num_hidden_layers",
    "expert_layer_offset",
    "expert_layer_period",
    "extract_layers",
    "first_k_dense_replace",
    "global_attn_indexes",
    "interleave_moe_layer_step",
    "moe_k",
    "moe_num_experts",
    "moe_num_shared_experts",
    "n_group",
    "n_layer",
    "n_layers",
    "n_routed_experts",
    "n_shared_experts",
    "no_rope_layers",
    "num_decoder_layers",
    "num_dense_layers",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_kv_shared_layers",
    "num_layers",
    "num_local_experts",
    "num_lstm_layers",
    "num_self_attends_per_block",
    "out_indices",
    "pred_num_hidden_layers",
    "stage_num_blocks",
    "topk_group",
    "window_block_indices",
    "residual_block_indices",
}


_VOCABULARY = 32_000  # rows of a table of tokens: enough to be large, and few to be initialized
_LENGTH = 512  # tokens, unless the model has fewer positions


def _is_size(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_size, value))
    return isinstance(value, int) and not isinstance(value, bool)


def without_sizes(
    config: dict[str, Any], kept: Iterable[str] = (), vocabulary: int = _VOCABULARY
) -> dict[str, Any]:
    """Return a small configuration without its sizes, except the depth and those named `kept`."""
    left: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            if inner := without_sizes(value, kept, vocabulary):
                left[name] = inner
        elif name == "vocab_size" and value < vocabulary:
            left[name] = vocabulary
        elif _keeps(name, value, kept):
            left[name] = value
    return _one_layer_of_each_kind(left)


def _keeps(name: str, value: Any, kept: Iterable[str]) -> bool:
    is_token = name.endswith(("_token_id", "_token_index"))
    return is_token or name in _KEPT or name in kept or not _is_size(value)


_ONE_LAYER = {"num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"}
_PATTERNS = {
    "attn_layer_indices",
    "attn_layer_period",
    "backbone_out_indices",
    "extract_layers",
    "first_k_dense_replace",
    "interleave_moe_layer_step",
    "layer_types",
    "layers_block_type",
    "num_dense_layers",
    "out_features",
    "out_indices",
}


def _one_layer_of_each_kind(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with one layer, unless other entries depend on the number."""
    if _PATTERNS & set(config):
        return config
    return {name: 1 if name in _ONE_LAYER else value for name, value in config.items()}


def published(row: Row, **changes: Any) -> Row:
    """Return the row of a model at its published sizes."""
    assert row.source is not None, f"{row.name} is built by a function"
    class_name, small = row.source
    sizes = without_sizes(small, changes.pop("kept", ()), changes.pop("vocabulary", _VOCABULARY))
    config = _merged(sizes, changes.pop("config", {}))
    length = changes.pop("length", _LENGTH)
    inputs = {name: _input(name, given, length) for name, given in row.inputs.items()}
    inputs |= changes.pop("inputs", {})
    size = changes.pop("size", 224)
    if size and "pixel_values" in inputs and len(inputs["pixel_values"].shape) == 4:
        height, width = (size, size) if isinstance(size, int) else size
        inputs["pixel_values"] = normal(1, 3, height, width)
    gain = changes.pop("gain", row.gain)
    tolerance = changes.pop("tolerance", row.tolerance)
    because = changes.pop("because", row.because)
    assert not changes, f"{row.name}: unknown changes {list(changes)}"
    return hf(
        f"{row.name} published",
        class_name,
        row.family,
        config,
        inputs,
        flags=row.flags,
        gain=gain,
        tolerance=tolerance,
        refused=row.refused,
        because=because,
    )


def _merged(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for name, value in changes.items():
        inner = merged.get(name)
        both = isinstance(inner, dict) and isinstance(value, dict)
        merged[name] = _merged(inner, value) if both else value
    return merged


def _input(name: str, given: Tensor, length: int) -> Tensor:
    """Return an input of the usual size, if its name says what it is."""
    if name == "input_ids" and given.values is None:
        return tokens(1, length, below=given.below)
    if name == "decoder_input_ids":
        return tokens(1, 64, below=given.below)
    if name == "attention_mask" and (given.kind == "ones" or given.values is not None):
        return ones(1, length)
    return given
