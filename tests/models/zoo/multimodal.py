"""Image and text models of `transformers`."""

from __future__ import annotations

from typing import Any

from .row import Row, exactly, normal, ones, tokens
from .small_configs import LAYERS, LLAMA, MIXED_LAYERS, TEXT, VISION
from .transformers_rows import hf, model

_IMAGE = normal(1, 3, 32, 32)
_PAIRED = {
    "input_ids": tokens(2, 7),
    "pixel_values": normal(2, 3, 32, 32),
    "attention_mask": ones(2, 7),
}


def _with_image(count: int, token: int) -> Any:
    return exactly([[1, *[token] * count, 5, 8, 13]])


QWEN2_VL_TOKENS = {
    "image_token_id": 90,
    "video_token_id": 91,
    "vision_start_token_id": 88,
    "vision_end_token_id": 89,
}
_QWEN2_VL: dict[str, Any] = {
    "text_config": {
        **TEXT,
        "num_key_value_heads": 2,
        "use_cache": False,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [2, 2, 2],
            "rope_theta": 10000.0,
        },
    },
    "vision_config": {
        "depth": 2,
        "embed_dim": 32,
        "num_heads": 4,
        "hidden_size": 48,
        "mlp_ratio": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    **QWEN2_VL_TOKENS,
}


def qwen2_vl_of_one_size(name: str, config: dict[str, Any], side: int, text: list[int]) -> Row:
    """Return the row of a model for one image of side x side patches, before the text."""
    pictures = (side // 2) ** 2  # four patches are merged to one token
    patch = config["vision_config"]["patch_size"]
    inputs = {
        "input_ids": exactly([[88, *[90] * pictures, 89, *text]]),
        "pixel_values": normal(side * side, 3 * 2 * patch**2),
    }
    kinds = [0, *[1] * pictures, 0, *[0] * len(text)]
    return Row(
        name,
        "transformers",
        "multimodal",
        lambda: _with_one_image_size(
            model("Qwen2VLForConditionalGeneration", config), [1, side, side], kinds
        ),
        inputs,
    )


def _with_one_image_size(qwen: Any, grid: list[int], kinds: list[int]) -> Any:
    import torch

    class OneSize(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qwen = qwen

        def forward(self, input_ids: Any, pixel_values: Any) -> Any:
            return self.qwen(
                input_ids=input_ids,
                pixel_values=pixel_values,
                image_grid_thw=torch.tensor([grid]),
                mm_token_type_ids=torch.tensor([kinds]),
                use_cache=False,
            )

    return OneSize()


ROWS = [
    hf(
        "clip",
        "CLIPModel",
        "multimodal",
        {"text_config": TEXT, "vision_config": VISION, "projection_dim": 32},
        _PAIRED,
    ),
    hf(
        "siglip",
        "SiglipModel",
        "multimodal",
        {"text_config": TEXT, "vision_config": VISION},
        {k: _PAIRED[k] for k in ("input_ids", "pixel_values")},
    ),
    hf(
        "clipseg",
        "CLIPSegForImageSegmentation",
        "multimodal",
        {
            "text_config": TEXT,
            "vision_config": {**VISION, "num_hidden_layers": 3},
            "projection_dim": 32,
            "reduce_dim": 16,
            "extract_layers": [0, 1, 2],
            "decoder_num_attention_heads": 4,
            "decoder_intermediate_size": 32,
            "conditional_layer": 0,
        },
        _PAIRED,
    ),
    hf(
        "owlvit",
        "OwlViTForObjectDetection",
        "multimodal",
        {
            "text_config": {**TEXT, "max_position_embeddings": 16},
            "vision_config": VISION,
            "projection_dim": 48,
        },
        {"input_ids": tokens(2, 7), "pixel_values": _IMAGE, "attention_mask": ones(2, 7)},
    ),
    hf(
        "blip",
        "BlipForConditionalGeneration",
        "multimodal",
        {"text_config": {**TEXT, "encoder_hidden_size": 48}, "vision_config": VISION},
        {"pixel_values": _IMAGE, "input_ids": tokens(1, 7)},
    ),
    hf(
        "blip2",
        "Blip2ForConditionalGeneration",
        "multimodal",
        {
            "vision_config": VISION,
            "qformer_config": {
                "vocab_size": 96,
                **LAYERS,
                "encoder_hidden_size": 48,
            },
            "text_config": {**TEXT, "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 48},
            "num_query_tokens": 4,
            "image_token_index": 90,
        },
        {"pixel_values": _IMAGE, "input_ids": _with_image(4, 90), "attention_mask": ones(1, 8)},
        flags={"use_cache": False},
    ),
    hf(
        "git",
        "GitForCausalLM",
        "multimodal",
        {**TEXT, "vision_config": VISION, "num_image_with_embedding": None, "use_cache": False},
        {"pixel_values": _IMAGE, "input_ids": tokens(1, 7)},
    ),
    hf(
        "vilt",
        "ViltModel",
        "multimodal",
        {**TEXT, **VISION, "max_image_length": -1},
        {"input_ids": tokens(1, 7), "pixel_values": _IMAGE, "pixel_mask": ones(1, 32, 32)},
        refused="Could not guard on data-dependent expression",
        because="torch.export: the model branches on the mask's sizes, and draws patches at random",
    ),
    hf(
        "llava",
        "LlavaForConditionalGeneration",
        "multimodal",
        {
            "vision_config": {**VISION, "model_type": "clip_vision_model"},
            "text_config": LLAMA,
            "image_token_index": 90,
            "image_seq_length": 16,
            "use_cache": False,
        },
        {"input_ids": _with_image(16, 90), "pixel_values": _IMAGE},
        flags={"use_cache": False},
    ),
    hf(
        "paligemma",
        "PaliGemmaForConditionalGeneration",
        "multimodal",
        {
            "vision_config": {
                **VISION,
                "model_type": "siglip_vision_model",
                "vision_use_head": False,
            },
            "text_config": {
                **TEXT,
                "model_type": "gemma",
                "num_key_value_heads": 1,
                "head_dim": 16,
                "use_cache": False,
            },
            "image_token_index": 90,
            "projection_dim": 48,
        },
        {
            "input_ids": _with_image(16, 90),
            "pixel_values": _IMAGE,
            "attention_mask": ones(1, 20),
            "token_type_ids": exactly([[0] * 20]),
        },
        flags={"use_cache": False},
    ),
    hf(
        "qwen2_vl",
        "Qwen2VLForConditionalGeneration",
        "multimodal",
        _QWEN2_VL,
        {
            "input_ids": exactly([[88, 90, 90, 90, 90, 89, 5, 8]]),
            "pixel_values": normal(16, 96),
            "image_grid_thw": exactly([[1, 4, 4]]),
            "mm_token_type_ids": exactly([[0, 1, 1, 1, 1, 0, 0, 0]]),
        },
        flags={"use_cache": False},
        refused="Could not guard on data-dependent expression",
        because="torch.export: the model splits pictures by sizes it reads off a tensor",
    ),
    qwen2_vl_of_one_size("qwen2_vl_of_one_size", _QWEN2_VL, 4, [5, 8]),
    hf(
        "qwen2_vl_text",
        "Qwen2VLTextModel",
        "multimodal",
        _QWEN2_VL["text_config"],
        {
            "input_ids": tokens(1, 8),
            "position_ids": exactly(
                [[[0, 1, 1, 1, 1, 3, 4, 5]], [[0, 1, 1, 2, 2, 3, 4, 5]], [[0, 1, 2, 1, 2, 3, 4, 5]]]
            ),
        },
    ),
    hf(
        "idefics3",
        "Idefics3ForConditionalGeneration",
        "multimodal",
        {
            "vision_config": VISION,
            "text_config": LLAMA,
            "image_token_id": 90,
            "scale_factor": 2,
            "use_cache": False,
        },
        {"input_ids": _with_image(4, 90), "pixel_values": normal(1, 1, 3, 32, 32)},
        flags={"use_cache": False},
    ),
    hf(
        "internvl",
        "InternVLForConditionalGeneration",
        "multimodal",
        {
            "vision_config": {
                **VISION,
                "image_size": [32, 32],
                "patch_size": [8, 8],
                "model_type": "internvl_vision",
            },
            "text_config": LLAMA,
            "image_token_id": 90,
            "downsample_ratio": 0.5,
            "use_cache": False,
        },
        {"input_ids": _with_image(4, 90), "pixel_values": _IMAGE},
        flags={"use_cache": False},
    ),
    hf(
        "gemma3_vision",
        "Gemma3ForConditionalGeneration",
        "multimodal",
        {
            "vision_config": {
                **VISION,
                "model_type": "siglip_vision_model",
                "vision_use_head": False,
            },
            "text_config": {
                **TEXT,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "use_cache": False,
                **MIXED_LAYERS,
            },
            "image_token_index": 90,
            "mm_tokens_per_image": 4,
        },
        {
            "input_ids": _with_image(4, 90),
            "pixel_values": _IMAGE,
            "attention_mask": ones(1, 8),
            "token_type_ids": exactly([[0, 1, 1, 1, 1, 0, 0, 0]]),
        },
        flags={"use_cache": False},
    ),
    hf(
        "layoutlm",
        "LayoutLMModel",
        "multimodal",
        {**TEXT, "max_2d_position_embeddings": 96},
        {"input_ids": tokens(1, 7), "bbox": exactly([[[1, 2, 30, 40]] * 7])},
    ),
    hf(
        "patchtst",
        "PatchTSTForPrediction",
        "time series",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "ffn_dim": 64,
            "prediction_length": 8,
        },
        {"past_values": normal(2, 32, 3)},
    ),
    hf(
        "patchtsmixer",
        "PatchTSMixerForPrediction",
        "time series",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 16,
            "num_layers": 2,
            "prediction_length": 8,
        },
        {"past_values": normal(2, 32, 3)},
    ),
    hf(
        "decision_transformer",
        "DecisionTransformerModel",
        "time series",
        {
            "state_dim": 5,
            "act_dim": 3,
            "hidden_size": 32,
            "max_ep_len": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "vocab_size": 1,
        },
        {
            "states": normal(1, 6, 5),
            "actions": normal(1, 6, 3),
            "rewards": normal(1, 6, 1),
            "returns_to_go": normal(1, 6, 1),
            "timesteps": exactly([[0, 1, 2, 3, 4, 5]]),
            "attention_mask": ones(1, 6),
        },
    ),
]
