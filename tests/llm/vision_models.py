"""Small vision-language models with random weights."""

from __future__ import annotations

from tiny_tokenizer import END, START_TURN

IMAGE = START_TURN  # stands for an image token
_TEXT = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": None,
}
_VISION = {"initializer_range": 0.2, "patch_size": 4}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 3]}


def _qwen2():
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    vision = {**_VISION, "depth": 2, "embed_dim": 32, "hidden_size": 48, "num_heads": 2}
    text = {**_TEXT, "rope_parameters": _ROPE}
    config = Qwen2VLConfig(vision_config=vision, text_config=text, image_token_id=IMAGE)
    return Qwen2VLForConditionalGeneration, config


def _qwen25():
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    vision = {
        **_VISION,
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 48,
        "num_heads": 2,
        "fullatt_block_indexes": [1],
        "window_size": 16,
    }
    text = {**_TEXT, "rope_parameters": _ROPE}
    config = Qwen2_5_VLConfig(vision_config=vision, text_config=text, image_token_id=IMAGE)
    return Qwen2_5_VLForConditionalGeneration, config


def _gemma3():
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    vision = {
        **_VISION,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
    }
    text = {
        **_TEXT,
        "head_dim": 12,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    config = Gemma3Config(
        vision_config=vision, text_config=text, mm_tokens_per_image=16, image_token_id=IMAGE
    )
    return Gemma3ForConditionalGeneration, config


VISION_MODELS = {"qwen2_vl": _qwen2, "qwen2_5_vl": _qwen25, "gemma3": _gemma3}


def vision_model(name):
    """Return a small model with an image token and one end token."""
    import torch

    cls, config = VISION_MODELS[name]()
    torch.manual_seed(0)
    model = cls(config).eval()
    for path, parameter in model.named_parameters():
        if path.endswith("mm_input_projection_weight"):  # starts as zeros, which hides the image
            torch.nn.init.normal_(parameter, std=0.2)
    model.generation_config.eos_token_id = END
    return model
