"""What a row of `transformers` at published sizes needs besides the defaults of its library."""

from __future__ import annotations

from typing import Any

from .row import exactly, normal, ones, tokens, uniform


def _image_text(patches: int, token: int = 90, text: int = 32) -> Any:
    return exactly([[1, *[token] * patches, *range(5, 5 + text)]])


def _boxes(length: int) -> Any:
    return exactly([[[n, 2 * n % 500, n + 30, 2 * n % 500 + 40] for n in range(length)]])


_WAVE = {"inputs": {"input_values": normal(1, 160_000)}}  # 10 s
_ENCODED = {"inputs": {"input_values": normal(1, 1, 24_000)}}  # 1 s
_SHORT = {"input_ids": tokens(1, 77), "attention_mask": ones(1, 77)}
# The small rows have basic blocks: with the published widths, these are four times as wide.
_RESNET_50 = {"backbone_config": {"layer_type": "bottleneck"}}
_DETECTION = {"size": (800, 800), "config": _RESNET_50}
_TWO_EXPERTS = {"num_local_experts": 2}
_IDEFICS3 = {
    "inputs": {
        "input_ids": _image_text(16),
        "pixel_values": normal(1, 1, 3, 256, 256),
    },
    "config": {"scale_factor": 2, "vision_config": {"image_size": 256}},
}

_DEPTH_ANYTHING = {"backbone_config": {"hidden_size": 384, "num_attention_heads": 6}}
_R18 = {
    "decoder_layers": 2,
    "encoder_in_channels": [128, 256, 512],
    "backbone_config": {"hidden_sizes": [64, 128, 256, 512]},
}
# Where a smaller member of a family has other widths than the defaults: those need over 8 GB.
_MINITRON = {
    "hidden_size": 3_072,
    "intermediate_size": 9_216,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
}
QWEN2_VL_2B = {
    "hidden_size": 1_536,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8_960,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [16, 24, 24],
        "rope_theta": 1e6,
    },
}
_EXAONE = {
    "hidden_size": 2_048,
    "intermediate_size": 4_096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
_GRANITE = {
    "hidden_size": 1_536,
    "intermediate_size": 512,
    "shared_intermediate_size": 1_024,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "mamba_n_heads": 48,
    "mamba_d_head": 64,
}

CHANGES: dict[str, dict[str, Any]] = {
    "mobilevitv2": {"size": 256, "config": {"width_multiplier": 1.0}},
    "mobilenet_v2": {"config": {"depth_multiplier": 1.0}},
    "mobilevit_deeplab": {"size": 512, "config": {"image_size": 512}},
    "efficientnet": {
        "config": {
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1_280,
            "image_size": 224,
        }
    },
    "dpt": {"size": 384},
    "depth_anything": {"size": 518, "config": _DEPTH_ANYTHING},
    "prompt_depth_anything": {
        "size": 518,
        "inputs": {"prompt_depth": uniform(1, 1, 192, 256)},
        "config": _DEPTH_ANYTHING,
    },
    "zoedepth": {"size": 384, "config": {"backbone_config": {"image_size": 384}}},
    "superpoint": {"size": (480, 640)},
    "vitpose": {"size": (256, 192)},
    "detr": _DETECTION,
    "conditional_detr": _DETECTION,
    "dab_detr": _DETECTION,
    "table_transformer": _DETECTION,
    "deformable_detr": {"size": 640, "config": {"decoder_layers": 2, **_RESNET_50}},
    "rt_detr": {"size": 640, "config": _R18},
    # With a gain of 6, 123 of the 300 best scores are equal to another one. With this gain all
    # differ, and eager torch selects the same boxes in float64.
    "rt_detr_v2": {"size": 640, "config": _R18, "gain": 10.5},
    # With the initial weights, eager torch selects other boxes if the image changes by 1e-7.
    "d_fine": {"size": 640, "config": {"decoder_layers": 2}, "gain": 4.0},
    # Its head takes 500 GFLOP at 512 x 512, over 90 s on the runtime on Linux.
    "upernet": {"size": 256, "config": {"backbone_config": {"hidden_sizes": [96, 192, 384, 768]}}},
    "mask2former": {"size": 384},
    "maskformer": {"size": 384},
    # The last block gets the queries: the first one needs another block.
    "eomt": {
        "size": 640,
        "config": {"num_blocks": 1, "num_hidden_layers": 2, "num_upscale_blocks": 1},
    },
    "sam": {"size": 1_024},
    "sam2_image": {"size": 1_024},
    "vitmatte": {
        "size": None,
        "inputs": {"pixel_values": normal(1, 4, 512, 512)},
        "config": {
            "hidden_size": 384,
            "convstream_hidden_sizes": [48, 96, 192],
            "fusion_hidden_sizes": [256, 128, 64, 32],
            "backbone_config": {
                "hidden_size": 384,
                "num_attention_heads": 6,
                "num_channels": 4,
                "image_size": 512,
                "window_size": 14,
            },
        },
    },
    "videomae": {"inputs": {"pixel_values": normal(1, 16, 3, 224, 224)}},
    "timesformer": {"inputs": {"pixel_values": normal(1, 8, 3, 224, 224)}},
    "vivit": {"inputs": {"pixel_values": normal(1, 32, 3, 224, 224)}},
    "vjepa2": {"inputs": {"pixel_values_videos": normal(1, 16, 3, 256, 256)}},
    "swin2sr": {"size": 64},
    "siglip2_vision": {
        "inputs": {
            "pixel_values": normal(1, 256, 768),
            "pixel_attention_mask": ones(1, 256),
            "spatial_shapes": exactly([[16, 16]]),
        }
    },
    "wavlm": _WAVE,
    "sew": _WAVE,
    "sew_d": _WAVE,
    "data2vec_audio": _WAVE,
    "wav2vec2_conformer": _WAVE,
    "wav2vec2_bert": {"inputs": {"input_features": normal(1, 500, 160)}},
    "speech_to_text": {"inputs": {"input_features": normal(1, 1_000, 80)}},
    "moonshine": _WAVE,
    "parakeet_ctc": {"inputs": {"input_features": normal(1, 1_000, 80)}},
    "granite_speech_encoder": {"inputs": {"hidden_states": normal(1, 500, 160)}},
    "encodec": _ENCODED,
    "dac": {"inputs": {"input_values": normal(1, 1, 16_000)}},
    "mimi": _ENCODED,
    "hifigan": {"inputs": {"spectrogram": normal(1, 100, 80)}},
    "fastspeech2_hifigan": {"inputs": {"spectrogram": normal(1, 100, 80)}},
    "clip": {"inputs": _SHORT},
    "clipseg": {
        "size": 352,
        "inputs": _SHORT,
        "config": {"vision_config": {"image_size": 352, "num_hidden_layers": 3}},
    },
    "altclip": {"inputs": _SHORT},
    "metaclip_2": {
        "inputs": {
            "input_ids": exactly([[1, *range(5, 80), 2]]),
            "attention_mask": ones(1, 77),
        }
    },
    "siglip": {"inputs": {"input_ids": tokens(1, 64)}},
    "owlvit": {
        "size": 768,
        "inputs": {"input_ids": tokens(2, 16), "attention_mask": ones(2, 16)},
    },
    "owlv2": {
        "size": 960,
        "inputs": {"input_ids": tokens(2, 16), "attention_mask": ones(2, 16)},
        # The library draws linear layers with a standard deviation of `initializer_factor`. With 1,
        # boxes are sigmoids of 40,000, whose rounding errors alone change them by 0.01.
        "config": {"vision_config": {"image_size": 960}, "initializer_factor": 0.1},
    },
    "blip": {"size": 384, "inputs": {"input_ids": tokens(1, 64)}},
    "blip2": {"inputs": {"input_ids": _image_text(32), "attention_mask": ones(1, 65)}},
    "git": {"inputs": {"input_ids": tokens(1, 64)}},
    "llava": {"inputs": {"input_ids": _image_text(49)}},
    "paligemma": {
        "inputs": {
            "input_ids": _image_text(256),
            "attention_mask": ones(1, 289),
            "token_type_ids": exactly([[0] * 289]),
        },
        "config": {
            "projection_dim": 2_048,
            "vision_config": {
                "hidden_size": 1_152,
                "intermediate_size": 4_304,
                "num_attention_heads": 16,
                "patch_size": 14,
            },
            "text_config": {
                "hidden_size": 2_048,
                "intermediate_size": 16_384,
                "num_attention_heads": 8,
                "num_key_value_heads": 1,
                "head_dim": 256,
            },
        },
    },
    "idefics3": _IDEFICS3,
    "smolvlm": _IDEFICS3,
    "internvl": {"size": 448, "inputs": {"input_ids": _image_text(256)}},
    "gemma3_vision": {
        "size": 896,
        "inputs": {
            "input_ids": _image_text(256),
            "attention_mask": ones(1, 289),
            "token_type_ids": exactly([[0, *[1] * 256, *[0] * 32]]),
        },
        "config": {"vision_config": {"image_size": 896, "patch_size": 14}},
    },
    "aya_vision": {
        "size": 364,
        "inputs": {"input_ids": _image_text(169)},
        "config": {
            "text_config": {"hidden_size": 4_096, "intermediate_size": 14_336},
            "vision_config": {"image_size": 364, "patch_size": 14},
        },
    },
    "got_ocr2": {
        "size": 1_024,
        "inputs": {"input_ids": _image_text(256)},
        "config": {
            "image_seq_length": 256,
            "text_config": {
                "hidden_size": 1_024,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "intermediate_size": 2_816,
            },
        },
    },
    "qwen2_vl_text": {
        "inputs": {
            "input_ids": tokens(1, 512),
            "position_ids": exactly([[list(range(512))]] * 3),
        },
        "config": QWEN2_VL_2B,
    },
    "layoutlm": {"inputs": {"bbox": _boxes(512)}},
    "layoutlmv3": {
        "inputs": {"bbox": _boxes(512)},
        "config": {"max_position_embeddings": 514},
    },
    "trocr": {
        "inputs": {"input_ids": tokens(1, 64), "encoder_hidden_states": normal(1, 577, 1_024)},
        "config": {"cross_attention_hidden_size": 1_024},
    },
    "pix2struct": {"inputs": {"flattened_patches": uniform(1, 2_048, 770)}},
    "perceiver": {"inputs": {"inputs": normal(1, 2_048, 768)}},
    # The library loops over patches of 32 values in Python: torch.export of 16,384 values, the
    # longest context, takes over 90 s.
    "timesfm2_5": {
        "inputs": {"past_values": normal(1, 1_024)},
        "config": {"context_length": 1_024},
    },
    "patchtst": {
        "inputs": {"past_values": normal(1, 512, 7)},
        "config": {
            "num_input_channels": 7,
            "context_length": 512,
            "patch_length": 16,
            "patch_stride": 8,
            "prediction_length": 96,
            "d_model": 128,
            "num_attention_heads": 16,
        },
    },
    "patchtsmixer": {
        "inputs": {"past_values": normal(1, 512, 7)},
        "config": {
            "num_input_channels": 7,
            "context_length": 512,
            "patch_length": 16,
            "patch_stride": 8,
            "prediction_length": 96,
            "d_model": 64,
        },
    },
    "decision_transformer": {
        "inputs": {
            "states": normal(1, 20, 17),
            "actions": normal(1, 20, 4),
            "rewards": normal(1, 20, 1),
            "returns_to_go": normal(1, 20, 1),
            "timesteps": exactly([list(range(20))]),
            "attention_mask": ones(1, 20),
        }
    },
    "esm": {
        "inputs": {"input_ids": tokens(1, 1_024, below=32), "attention_mask": ones(1, 1_024)},
        "config": {"vocab_size": 33, "mask_token_id": 32, "max_position_embeddings": 1_026},
    },
    "xlm_roberta": {"config": {"max_position_embeddings": 514}},
    "nemotron": {"config": _MINITRON},
    "exaone4": {"config": _EXAONE},
    "gpt_neox": {
        "config": {"hidden_size": 2_048, "intermediate_size": 8_192, "num_attention_heads": 16}
    },
    "hunyuan": {"config": {"head_dim": 128}},
    "bloom": {"config": {"hidden_size": 1_024, "n_head": 16}},
    # The library unrolls its scan, as in `mamba`: torch.export of 512 tokens takes too long.
    "falcon_mamba": {"inputs": {"input_ids": tokens(1, 256)}, "config": {"hidden_size": 4_096}},
    # And the same; the library divides by the number of layers less one.
    "rwkv": {
        "inputs": {"input_ids": tokens(1, 64)},
        "config": {"num_hidden_layers": 2, "hidden_size": 768, "attention_hidden_size": 768},
    },
    "blenderbot": {"inputs": {"input_ids": tokens(1, 128)}},
    "luke": {"config": {"entity_vocab_size": 1_000, "max_position_embeddings": 514}},
    "canine": {"inputs": {"input_ids": tokens(1, 2_048)}},
    # Widths of a smaller member of the family: the default one needs more than 8 GB in float32.
    "cohere2": {
        "config": {
            "hidden_size": 4_096,
            "intermediate_size": 14_336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        }
    },
    "deepseek_v3": {
        "config": {
            "hidden_size": 2_048,
            "intermediate_size": 10_944,
            "moe_intermediate_size": 1_408,
            "num_attention_heads": 16,
        }
    },
    # The default `moe_intermediate_size` is 1407: torch._grouped_mm needs rows of 16 bytes.
    "deepseek_v2": {
        "config": {
            "hidden_size": 2_048,
            "intermediate_size": 10_944,
            "moe_intermediate_size": 1_408,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
        }
    },
    "seed_oss": {"config": {"hidden_size": 4_096, "intermediate_size": 14_336}},
    "llama4": {
        "config": {
            "num_local_experts": 2,
            "intermediate_size": 4_096,
            "intermediate_size_mlp": 8_192,
        }
    },
    "mixtral": {"config": _TWO_EXPERTS},
    "phimoe": {"config": _TWO_EXPERTS},
    # A layer with a scan, which the library unrolls, and one with attention and experts.
    "jamba": {
        "config": {
            "num_experts": 2,
            "hidden_size": 2_560,
            "intermediate_size": 8_192,
            "num_hidden_layers": 2,
            "attn_layer_period": 2,
        }
    },
    # The library computes chunk * tokens * heads * states elements at once: 8 to 17 GB with the
    # default chunks of 256 tokens.
    "mamba2": {
        "config": {"chunk_size": 32},
        "tolerance": 3e-4,
        "because": "eager torch differs by 1.5e-4 from the same model in float64",
    },
    "bamba": {"config": {"mamba_chunk_size": 16}},
    "falcon_h1": {"config": {"mamba_chunk_size": 16}},
    "nemotron_h": {"config": {"chunk_size": 32}},
    "granitemoe": {"config": _TWO_EXPERTS},
    "granitemoehybrid": {"config": {**_GRANITE, "mamba_chunk_size": 32}},
    "minimax_m2": {"config": {"num_local_experts": 4}},
}

# The matrix product of the runtime on Linux takes 0.15 s for 1 GFLOP at a width of 4,096. These
# models have a vocabulary of 8,192, which changes nothing but two matrices, to fit the time limit.
SMALL_VOCABULARY = frozenset(
    [
        "apertus",
        "arcee",
        "aya_vision",
        "bitnet",
        "codegen",
        "deepseek_v2",
        "deepseek_v3",
        "diffllama",
        "exaone4",
        "falcon",
        "gemma2",
        "gemma3",
        "gemma3_vision",
        "gemma4",
        "glm4",
        "gpt_oss",
        "gptj",
        "granite",
        "helium",
        "hunyuan",
        "idefics3",
        "internvl",
        "lfm2",
        "llama",
        "llava",
        "mamba2",
        "minicpm3",
        "minimax_m2",
        "ministral3",
        "mistral",
        "nemotron",
        "nemotron_h",
        "olmo2",
        "paligemma",
        "phi3",
        "rwkv",
        "smollm3",
        "smolvlm",
        "stablelm",
        "starcoder2",
        "xlstm",
    ]
)
# And these 256 tokens.
SHORT = frozenset(
    [
        "bamba",
        "cohere2",
        "falcon_h1",
        "glm4_moe",
        "granitemoe",
        "granitemoehybrid",
        "jamba",
        "llama4",
        "mixtral",
        "olmo3",
        "phimoe",
        "qwen3",
        "qwen3_5",
        "seed_oss",
        "t5gemma",
    ]
)
