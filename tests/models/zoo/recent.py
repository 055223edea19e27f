"""Language models of the last years, of `transformers`."""

from __future__ import annotations

from typing import Any

from .row import Row, tokens
from .transformers_rows import hf

_SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
_HEADED = {**_SMALL, "head_dim": 16}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_MIXED = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_TOKENS = {"input_ids": tokens(2, 9)}
_PAIR = {"input_ids": tokens(2, 9), "decoder_input_ids": tokens(2, 6)}


def _decoder(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    family = more.pop("family", "decoder")
    return hf(name, class_name, family, config, _TOKENS, **more)


def _experts(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return _decoder(name, class_name, config, family="mixture of experts", **more)


def _state_space(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return _decoder(name, class_name, config, family="state space", **more)


def _encoder(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return _decoder(name, class_name, config, family="encoder", **more)


def _pair(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    flags = {"use_cache": False}
    return hf(name, class_name, "encoder-decoder", config, _PAIR, flags=flags, **more)


_BART: dict[str, Any] = {
    "vocab_size": 96,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}

ROWS = [
    _decoder("smollm3", "SmolLM3ForCausalLM", _SMALL),
    _decoder("phi3", "Phi3ForCausalLM", _SMALL),
    _decoder("granite", "GraniteForCausalLM", _SMALL),
    _decoder("glm4", "Glm4ForCausalLM", _HEADED),
    _decoder("ernie4_5", "Ernie4_5ForCausalLM", _HEADED),
    _decoder("exaone4", "Exaone4ForCausalLM", {**_SMALL, **_MIXED}),
    _decoder("olmo3", "Olmo3ForCausalLM", {**_SMALL, **_MIXED}),
    _decoder("nemotron", "NemotronForCausalLM", _HEADED),
    _decoder("stablelm", "StableLmForCausalLM", {**_SMALL, "hidden_size": 64}),
    _decoder("starcoder2", "Starcoder2ForCausalLM", _SMALL),
    _decoder("seed_oss", "SeedOssForCausalLM", _HEADED),
    _decoder("hunyuan", "HunYuanDenseV1ForCausalLM", _HEADED),
    _decoder("apertus", "ApertusForCausalLM", _SMALL),
    _decoder("arcee", "ArceeForCausalLM", _SMALL),
    _decoder("helium", "HeliumForCausalLM", {**_SMALL, "head_dim": 12}),
    _decoder("bitnet", "BitNetForCausalLM", _SMALL),
    _decoder("diffllama", "DiffLlamaForCausalLM", _SMALL),
    _decoder("ministral3", "Ministral3ForCausalLM", _HEADED),
    _decoder("modernbert_decoder", "ModernBertDecoderForCausalLM", _SMALL),
    _decoder(
        "gemma4",
        "Gemma4ForCausalLM",
        {
            **_HEADED,
            **_MIXED,
            "global_head_dim": 16,
            "vocab_size_per_layer_input": 96,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
        },
    ),
    _decoder(
        "gpt_bigcode",
        "GPTBigCodeForCausalLM",
        {
            "vocab_size": 96,
            "n_embd": 48,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "use_cache": False,
        },
    ),
    _decoder(
        "codegen",
        "CodeGenForCausalLM",
        {
            "vocab_size": 96,
            "n_embd": 48,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 8,
            "n_positions": 64,
            "use_cache": False,
        },
    ),
    _decoder(
        "minicpm3",
        "MiniCPM3ForCausalLM",
        {
            **_SMALL,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
    _experts(
        "llama4",
        "Llama4ForCausalLM",
        {
            **_HEADED,
            "intermediate_size_mlp": 64,
            "num_local_experts": 4,
            "attention_chunk_size": 4,
            "no_rope_layers": [1, 0],
            "interleave_moe_layer_step": 2,
        },
    ),
    _experts("olmoe", "OlmoeForCausalLM", {**_SMALL, "num_experts": 4, "num_experts_per_tok": 2}),
    _experts("phimoe", "PhimoeForCausalLM", {**_SMALL, "num_local_experts": 4}),
    _experts("granitemoe", "GraniteMoeForCausalLM", {**_SMALL, "num_local_experts": 4}),
    _experts(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        {**_SMALL, **_EXPERTS, "shared_expert_intermediate_size": 32},
    ),
    _experts(
        "minimax_m2",
        "MiniMaxM2ForCausalLM",
        {**_HEADED, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    _experts(
        "lfm2_moe",
        "Lfm2MoeForCausalLM",
        {**_SMALL, **_EXPERTS, "num_dense_layers": 1, "layer_types": ["conv", "full_attention"]},
    ),
    _experts(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        {
            **_HEADED,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    _experts(
        "ernie4_5_moe",
        "Ernie4_5_MoeForCausalLM",
        {
            **_SMALL,
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 1,
        },
    ),
    _experts(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        {
            **_SMALL,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
        },
    ),
    _state_space(
        "falcon_h1",
        "FalconH1ForCausalLM",
        {
            **_HEADED,
            "mamba_d_ssm": 96,
            "mamba_n_heads": 8,
            "mamba_d_head": 12,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 8,
        },
    ),
    _state_space(
        "falcon_mamba",
        "FalconMambaForCausalLM",
        {
            "vocab_size": 96,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "use_cache": False,
        },
    ),
    _state_space(
        "granitemoehybrid",
        "GraniteMoeHybridForCausalLM",
        {
            **_SMALL,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 32,
            "mamba_n_heads": 8,
            "mamba_d_head": 12,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 8,
        },
    ),
    _state_space(
        "nemotron_h",
        "NemotronHForCausalLM",
        {
            **_HEADED,
            "layers_block_type": ["mamba", "attention"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 12,
            "ssm_state_size": 16,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    _state_space(
        "xlstm",
        "xLSTMForCausalLM",
        {
            "vocab_size": 96,
            "hidden_size": 32,
            "num_heads": 2,
            "num_blocks": 2,
            "num_hidden_layers": 2,
            "use_cache": False,
            "chunk_size": 8,
        },
    ),
    _state_space(
        "qwen3_5",
        "Qwen3_5ForCausalLM",
        {
            **_HEADED,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    _encoder("xlm_roberta", "XLMRobertaModel", _SMALL),
    _encoder("electra", "ElectraModel", {**_SMALL, "embedding_size": 32}),
    _encoder("nomic_bert", "NomicBertModel", _SMALL),
    _encoder("eurobert", "EuroBertModel", _SMALL),
    _encoder("jina_embeddings_v3", "JinaEmbeddingsV3Model", _SMALL),
    _encoder("big_bird", "BigBirdModel", {**_SMALL, "attention_type": "original_full"}),
    _encoder(
        "canine",
        "CanineModel",
        {**_SMALL, "num_hash_buckets": 64, "local_transformer_stride": 8, "downsampling_rate": 2},
    ),
    _encoder("luke", "LukeModel", {**_SMALL, "entity_vocab_size": 8, "entity_emb_size": 16}),
    _encoder("rembert", "RemBertModel", {**_SMALL, "input_embedding_size": 16}),
    _pair("pegasus", "PegasusForConditionalGeneration", _BART),
    _pair("mbart", "MBartForConditionalGeneration", _BART),
    _pair("m2m_100", "M2M100ForConditionalGeneration", _BART),
    _pair("blenderbot", "BlenderbotForConditionalGeneration", _BART),
    _pair(
        "t5gemma",
        "T5GemmaForConditionalGeneration",
        {"encoder": {**_HEADED, **_MIXED}, "decoder": {**_HEADED, **_MIXED}, "vocab_size": 96},
    ),
]
