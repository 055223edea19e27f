"""Small decoders of transformers with random weights, each as its class builds it."""

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
    # Larger than the libraries' own 0.02, with which few different tokens come out.
    "initializer_range": 0.2,
    "tie_word_embeddings": False,  # tied random weights repeat the last token for ever
}
WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}


def _llama(transformers, **more):
    config = transformers.LlamaConfig(**{**SMALL, **more})
    return transformers.LlamaForCausalLM(config)


def _qwen3(transformers, **more):
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**{**SMALL, **more}))


def _mistral(transformers, **more):
    config = transformers.MistralConfig(**{**SMALL, "sliding_window": 8, **more})
    return transformers.MistralForCausalLM(config)


def _gemma2(transformers, **more):
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**{**SMALL, **WINDOW, **more}))


def _gemma3(transformers, **more):
    config = transformers.Gemma3TextConfig(**{**SMALL, **WINDOW, **more})
    return transformers.Gemma3ForCausalLM(config)


def _gpt2(transformers, **more):
    config = transformers.GPT2Config(
        vocab_size=256,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=128,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.2,
        tie_word_embeddings=False,
        **more,
    )
    return transformers.GPT2LMHeadModel(config)


DECODERS = {
    "llama": _llama,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "mistral": _mistral,
    "gpt2": _gpt2,
}


def decoder(name, **more):
    """A model in evaluation mode, the same one each time."""
    import transformers

    torch.manual_seed(0)
    return DECODERS[name](transformers, **more).eval()


def prompt(length, batch=1, vocabulary=256):
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, vocabulary, (batch, length), generator=generator)


def greedy(model, tokens, count, **more):
    """What transformers itself generates."""
    with torch.no_grad():
        return model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=count,
            do_sample=False,
            **more,
        )
