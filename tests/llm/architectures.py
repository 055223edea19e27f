"""Architectures whose bundles are judged: the decoders of the zoo, and some that it lacks."""

from __future__ import annotations

import sys
from pathlib import Path

from tiny_tokenizer import END

sys.path.append(str(Path(__file__).parents[1] / "models"))

_SIZES = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 6,
    "long_factor": [2.0] * 6,
    "original_max_position_embeddings": 256,
}
_FAMILIES = ("decoder", "mixture of experts", "state space")

# Name, model class, and configuration of architectures that the zoo lacks.
_MORE = {
    "gemma": ("GemmaForCausalLM", {**_GROUPED, "head_dim": 16}),
    "cohere": ("CohereForCausalLM", _GROUPED),
    "olmo": ("OlmoForCausalLM", _GROUPED),
    "glm": ("GlmForCausalLM", {**_GROUPED, "head_dim": 16}),
    "persimmon": ("PersimmonForCausalLM", _SIZES),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {
            "vocab_size": 128,
            "hidden_size": 48,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "max_position_embeddings": 2048,
        },
    ),
    "biogpt": ("BioGptForCausalLM", _SIZES),
    "xglm": (
        "XGLMForCausalLM",
        {
            "vocab_size": 128,
            "d_model": 48,
            "ffn_dim": 64,
            "num_layers": 2,
            "attention_heads": 4,
            "max_position_embeddings": 2048,
        },
    ),
    "falcon_alibi": ("FalconForCausalLM", {**_SIZES, "alibi": True, "multi_query": False}),
    "phi3_longrope": ("Phi3ForCausalLM", {**_GROUPED, "rope_parameters": _LONG}),
}

# The sizes that a bundle is judged with, by the names of different configurations.
_CHANGES = {
    "vocab_size": 128,
    "vocab_size_per_layer_input": 128,
    "max_position_embeddings": 2048,
    "max_seq_len": 2048,
    "use_cache": True,
    "initializer_range": 0.2,  # the default of 0.02 makes all tokens almost equally likely
}


def names():
    """Return the names of all rows."""
    import zoo

    rows = [
        name
        for name, row in zoo.ROWS.items()
        if row.library == "transformers" and row.family in _FAMILIES
    ]
    return [*rows, *_MORE]


def build(name):
    """Return a model with random weights, a context of 2048 tokens and one end token."""
    import torch
    import transformers
    import zoo

    if name in _MORE:
        class_name, sizes = _MORE[name]
        cls = getattr(transformers, class_name)
        config = cls.config_class(**sizes)
    else:
        model = zoo.ROWS[name].build()
        cls, config = type(model), model.config
    for key, value in _CHANGES.items():
        if getattr(config, key, None) is not None:
            setattr(config, key, value)
    # ModernBERT's configuration does not accept None.
    unused = 0 if name == "modernbert_decoder" else None
    config.eos_token_id, config.bos_token_id, config.pad_token_id = END, unused, unused
    torch.manual_seed(0)
    model = cls(config).eval()
    for path, weight in model.named_parameters():
        if path.endswith("gate.weight") and not bool(weight.any()):
            # A router of zeros, as in Ernie 4.5, likes all experts equally: any choice is right.
            torch.nn.init.normal_(weight, std=0.2)
    return model
