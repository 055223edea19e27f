"""Decoders of `transformers`: dense, sliding-window, sink, expert and state-space models."""

from __future__ import annotations

from typing import Any

from .row import Dynamic, Row, tokens
from .small_configs import EXPERTS, GPT, LANGUAGE, MAMBA, MAMBA_HEADS, MIXED_LAYERS
from .transformers_rows import hf

_SMALL = {**LANGUAGE, "use_cache": False}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_HEADED = {**_GROUPED, "head_dim": 16}
_TOKENS = {"input_ids": tokens(2, 9)}
_SEQUENCE = Dynamic({"input_ids": (0, 1)}, {"input_ids": tokens(3, 5)})


def decoder(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    family = more.pop("family", "decoder")
    return hf(name, class_name, family, config, _TOKENS, **more)


def experts(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return decoder(name, class_name, config, family="mixture of experts", **more)


def state_space(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return decoder(name, class_name, config, family="state space", **more)


ROWS = [
    decoder("llama", "LlamaForCausalLM", _GROUPED, dynamic=_SEQUENCE),
    decoder("qwen2", "Qwen2ForCausalLM", _GROUPED),
    decoder("qwen3", "Qwen3ForCausalLM", _HEADED),
    decoder("gemma2", "Gemma2ForCausalLM", {**_HEADED, **MIXED_LAYERS}),
    decoder("gemma3", "Gemma3ForCausalLM", {**_HEADED, **MIXED_LAYERS}),
    decoder("mistral", "MistralForCausalLM", {**_HEADED, "sliding_window": 4}),
    decoder("phi", "PhiForCausalLM", _GROUPED),
    decoder(
        "gpt2",
        "GPT2LMHeadModel",
        GPT,
    ),
    decoder("gpt_neox", "GPTNeoXForCausalLM", _SMALL),
    decoder(
        "gptj",
        "GPTJForCausalLM",
        {
            **GPT,
            "rotary_dim": 8,
        },
    ),
    decoder("opt", "OPTForCausalLM", {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    decoder(
        "bloom",
        "BloomForCausalLM",
        {"vocab_size": 96, "hidden_size": 48, "n_layer": 2, "n_head": 4, "use_cache": False},
    ),
    decoder("falcon", "FalconForCausalLM", {**_SMALL, "multi_query": True}),
    decoder(
        "mpt",
        "MptForCausalLM",
        {
            "vocab_size": 96,
            "d_model": 48,
            "n_layers": 2,
            "n_heads": 4,
            "max_seq_len": 64,
            "use_cache": False,
        },
    ),
    decoder("olmo2", "Olmo2ForCausalLM", _GROUPED),
    decoder("cohere2", "Cohere2ForCausalLM", {**_HEADED, **MIXED_LAYERS}),
    decoder("lfm2", "Lfm2ForCausalLM", {**_GROUPED, "layer_types": ["conv", "full_attention"]}),
    experts("mixtral", "MixtralForCausalLM", {**_GROUPED, "num_local_experts": 4}),
    experts(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        {
            **_HEADED,
            **EXPERTS,
        },
    ),
    experts(
        "gpt_oss",
        "GptOssForCausalLM",
        {**_HEADED, **MIXED_LAYERS, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    experts(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        {
            **_SMALL,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 12,
        },
    ),
    state_space(
        "mamba",
        "MambaForCausalLM",
        MAMBA,
    ),
    state_space(
        "mamba2",
        "Mamba2ForCausalLM",
        {
            "vocab_size": 96,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 16,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 2,
            "chunk_size": 8,
            "use_cache": False,
        },
    ),
    state_space(
        "jamba",
        "JambaForCausalLM",
        {
            **_GROUPED,
            "num_hidden_layers": 4,
            "attn_layer_period": 4,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "mamba_d_state": 8,
            "use_mamba_kernels": False,
        },
    ),
    state_space(
        "bamba",
        "BambaForCausalLM",
        {
            **_GROUPED,
            "attn_layer_indices": [1],
            **MAMBA_HEADS,
        },
    ),
    state_space(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        {**_SMALL, "lru_width": 48, "attention_window_size": 8, "num_hidden_layers": 3},
    ),
    state_space(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        {
            **_HEADED,
            "layer_types": ["linear_attention", "full_attention"],
            **EXPERTS,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    state_space(
        "rwkv",
        "RwkvForCausalLM",
        {
            "vocab_size": 96,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
            "use_cache": False,
        },
    ),
]
