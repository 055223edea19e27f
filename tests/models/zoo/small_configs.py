"""Small configurations that rows of `transformers` share."""

from __future__ import annotations

from typing import Any

from .row import normal

LAYERS: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
VISION = {**LAYERS, "image_size": 32, "patch_size": 8}
LANGUAGE = {**LAYERS, "vocab_size": 96, "max_position_embeddings": 64, "pad_token_id": 0}
TEXT = {**LANGUAGE, "bos_token_id": 1, "eos_token_id": 2}
GROUPED_TEXT = {**TEXT, "num_key_value_heads": 2, "use_cache": False}
LLAMA = {**GROUPED_TEXT, "model_type": "llama"}

MIXED_LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MAMBA_HEADS = {
    "mamba_n_heads": 8,
    "mamba_d_head": 12,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
MAMBA = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 8,
    "use_cache": False,
}
GPT = {
    "vocab_size": 96,
    "n_embd": 48,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "use_cache": False,
}
TWO_STACKS: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}
TEXT_TO_TEXT = {**TWO_STACKS, "vocab_size": 96, "d_model": 48, "pad_token_id": 0}
BART = {**TEXT_TO_TEXT, "max_position_embeddings": 64}

IMAGE = {"pixel_values": normal(1, 3, 32, 32)}
LARGER_IMAGE = {"pixel_values": normal(1, 3, 64, 64)}
