"""Small decoders of transformers with random weights, built by their own classes."""

from __future__ import annotations

import torch

SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    # transformers' default of 0.02 generates too few different tokens.
    "initializer_range": 0.2,
    "tie_word_embeddings": False,  # tied random weights repeat the last token forever
}
WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}


EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}

# Model class, configuration class, and arguments besides SMALL.
DECODERS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", WINDOW),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", WINDOW),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 8}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {"sliding_window": 8}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**EXPERTS, "num_experts": 4}),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **EXPERTS,
            **LATENT,
            "v_head_dim": 16,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
}


def decoder(name, **more):
    """Return a model in evaluation mode with reproducible weights."""
    import transformers

    model, config, extra = DECODERS[name]
    arguments = {**SMALL, **extra, **more}
    if name == "deepseek-v3":
        del arguments["head_dim"]  # derived from the widths of its parts
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**arguments)).eval()


def prompt(length, batch=1, vocabulary=256):
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, vocabulary, (batch, length), generator=generator)


def greedy(model, tokens, count, **more):
    """Return the tokens that transformers generates."""
    with torch.no_grad():
        return model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=count,
            do_sample=False,
            **more,
        )
