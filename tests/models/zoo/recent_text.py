"""Recent language models of `transformers`."""

from __future__ import annotations

from typing import Any

from .decoders import decoder, experts, state_space
from .row import Row, tokens
from .small_configs import BART, EXPERTS, GPT, GROUPED_TEXT, MAMBA, MAMBA_HEADS, MIXED_LAYERS
from .transformers_rows import hf

_HEADED = {**GROUPED_TEXT, "head_dim": 16}
_PAIR = {"input_ids": tokens(2, 9), "decoder_input_ids": tokens(2, 6)}


def _encoder(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return decoder(name, class_name, config, family="encoder", **more)


def _pair(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    flags = {"use_cache": False}
    return hf(name, class_name, "encoder-decoder", config, _PAIR, flags=flags, **more)


ROWS = [
    decoder("smollm3", "SmolLM3ForCausalLM", GROUPED_TEXT),
    decoder("phi3", "Phi3ForCausalLM", GROUPED_TEXT),
    decoder("granite", "GraniteForCausalLM", GROUPED_TEXT),
    decoder("glm4", "Glm4ForCausalLM", _HEADED),
    decoder("ernie4_5", "Ernie4_5ForCausalLM", _HEADED),
    decoder("exaone4", "Exaone4ForCausalLM", {**GROUPED_TEXT, **MIXED_LAYERS}),
    decoder("olmo3", "Olmo3ForCausalLM", {**GROUPED_TEXT, **MIXED_LAYERS}),
    decoder("nemotron", "NemotronForCausalLM", _HEADED),
    decoder("stablelm", "StableLmForCausalLM", {**GROUPED_TEXT, "hidden_size": 64}),
    decoder("starcoder2", "Starcoder2ForCausalLM", GROUPED_TEXT),
    decoder("seed_oss", "SeedOssForCausalLM", _HEADED),
    decoder("hunyuan", "HunYuanDenseV1ForCausalLM", _HEADED),
    decoder("apertus", "ApertusForCausalLM", GROUPED_TEXT),
    decoder("arcee", "ArceeForCausalLM", GROUPED_TEXT),
    decoder("helium", "HeliumForCausalLM", {**GROUPED_TEXT, "head_dim": 12}),
    decoder("bitnet", "BitNetForCausalLM", GROUPED_TEXT),
    decoder("diffllama", "DiffLlamaForCausalLM", GROUPED_TEXT),
    decoder("ministral3", "Ministral3ForCausalLM", _HEADED),
    decoder("modernbert_decoder", "ModernBertDecoderForCausalLM", GROUPED_TEXT),
    decoder(
        "gemma4",
        "Gemma4ForCausalLM",
        {
            **_HEADED,
            **MIXED_LAYERS,
            "global_head_dim": 16,
            "vocab_size_per_layer_input": 96,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
        },
    ),
    decoder(
        "gpt_bigcode",
        "GPTBigCodeForCausalLM",
        GPT,
    ),
    decoder(
        "codegen",
        "CodeGenForCausalLM",
        {
            **GPT,
            "rotary_dim": 8,
        },
    ),
    decoder(
        "minicpm3",
        "MiniCPM3ForCausalLM",
        {
            **GROUPED_TEXT,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
    experts(
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
    experts(
        "olmoe", "OlmoeForCausalLM", {**GROUPED_TEXT, "num_experts": 4, "num_experts_per_tok": 2}
    ),
    experts("phimoe", "PhimoeForCausalLM", {**GROUPED_TEXT, "num_local_experts": 4}),
    experts("granitemoe", "GraniteMoeForCausalLM", {**GROUPED_TEXT, "num_local_experts": 4}),
    experts(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        {**GROUPED_TEXT, **EXPERTS, "shared_expert_intermediate_size": 32},
    ),
    experts(
        "minimax_m2",
        "MiniMaxM2ForCausalLM",
        {**_HEADED, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    experts(
        "lfm2_moe",
        "Lfm2MoeForCausalLM",
        {
            **GROUPED_TEXT,
            **EXPERTS,
            "num_dense_layers": 1,
            "layer_types": ["conv", "full_attention"],
        },
    ),
    experts(
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
    experts(
        "ernie4_5_moe",
        "Ernie4_5_MoeForCausalLM",
        {
            **GROUPED_TEXT,
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 1,
        },
    ),
    experts(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        {
            **GROUPED_TEXT,
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
    state_space(
        "falcon_h1",
        "FalconH1ForCausalLM",
        {
            **_HEADED,
            "mamba_d_ssm": 96,
            **MAMBA_HEADS,
        },
    ),
    state_space(
        "falcon_mamba",
        "FalconMambaForCausalLM",
        MAMBA,
    ),
    state_space(
        "granitemoehybrid",
        "GraniteMoeHybridForCausalLM",
        {
            **GROUPED_TEXT,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 32,
            **MAMBA_HEADS,
        },
    ),
    state_space(
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
    state_space(
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
    state_space(
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
    _encoder("xlm_roberta", "XLMRobertaModel", GROUPED_TEXT),
    _encoder("electra", "ElectraModel", {**GROUPED_TEXT, "embedding_size": 32}),
    _encoder("nomic_bert", "NomicBertModel", GROUPED_TEXT),
    _encoder("eurobert", "EuroBertModel", GROUPED_TEXT),
    _encoder("jina_embeddings_v3", "JinaEmbeddingsV3Model", GROUPED_TEXT),
    _encoder("big_bird", "BigBirdModel", {**GROUPED_TEXT, "attention_type": "original_full"}),
    _encoder(
        "canine",
        "CanineModel",
        {
            **GROUPED_TEXT,
            "num_hash_buckets": 64,
            "local_transformer_stride": 8,
            "downsampling_rate": 2,
        },
    ),
    _encoder("luke", "LukeModel", {**GROUPED_TEXT, "entity_vocab_size": 8, "entity_emb_size": 16}),
    _encoder("rembert", "RemBertModel", {**GROUPED_TEXT, "input_embedding_size": 16}),
    _pair("pegasus", "PegasusForConditionalGeneration", BART),
    _pair("mbart", "MBartForConditionalGeneration", BART),
    _pair("m2m_100", "M2M100ForConditionalGeneration", BART),
    _pair("blenderbot", "BlenderbotForConditionalGeneration", BART),
    _pair(
        "t5gemma",
        "T5GemmaForConditionalGeneration",
        {
            "encoder": {**_HEADED, **MIXED_LAYERS},
            "decoder": {**_HEADED, **MIXED_LAYERS},
            "vocab_size": 96,
        },
    ),
]
