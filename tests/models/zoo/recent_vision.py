"""Recent vision models of `transformers`."""

from __future__ import annotations

from typing import Any

from .row import Row, exactly, normal, ones, tokens, uniform
from .small_configs import IMAGE, LARGER_IMAGE, TEXT, VISION
from .transformers_rows import hf
from .vision import DETR, RT_DETR, SWIN

_CLIP = {"pixel_values": normal(1, 4, 3, 32, 32)}


def _vision(name: str, class_name: str, config: dict[str, Any] = VISION, **more: Any) -> Row:
    inputs = more.pop("inputs", IMAGE)
    return hf(name, class_name, more.pop("family", "vision"), config, inputs, **more)


_HGNET = {
    "model_type": "hgnet_v2",
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 8, 16, 16],
    "stage_mid_channels": [8, 8, 8, 8],
    "stage_out_channels": [8, 16, 16, 24],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_downsample": [False, True, True, True],
    "stage_light_block": [False, False, True, True],
    "stage_kernel_size": [3, 3, 3, 3],
    "stage_numb_of_layers": [2, 2, 2, 2],
    "hidden_sizes": [8, 16, 16, 24],
    "depths": [1, 1, 1, 1],
    "embedding_size": 8,
    "out_features": ["stage2", "stage3", "stage4"],
}

ROWS = [
    _vision("deit", "DeiTModel"),
    _vision("dinov2_with_registers", "Dinov2WithRegistersModel", {**VISION, "mlp_ratio": 2}),
    _vision(
        "dinov3_convnext",
        "DINOv3ConvNextModel",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32},
    ),
    _vision("ijepa", "IJepaModel"),
    _vision(
        "pvt_v2",
        "PvtV2Model",
        {
            "image_size": 64,
            "hidden_sizes": [8, 16, 16, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
        },
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "poolformer",
        "PoolFormerModel",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "swiftformer",
        "SwiftFormerModel",
        {"image_size": 64, "embed_dims": [8, 16, 16, 24], "depths": [1, 1, 1, 1]},
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "levit",
        "LevitModel",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "mobilevitv2",
        "MobileViTV2Model",
        {"image_size": 64, "width_multiplier": 0.25},
        inputs=LARGER_IMAGE,
    ),
    _vision("aimv2", "Aimv2VisionModel", VISION),
    _vision(
        "siglip2_vision",
        "Siglip2VisionModel",
        {**{k: v for k, v in VISION.items() if k != "image_size"}, "num_patches": 16},
        inputs={
            "pixel_values": normal(1, 16, 192),
            "pixel_attention_mask": ones(1, 16),
            "spatial_shapes": exactly([[4, 4]]),
        },
    ),
    _vision(
        "vitdet",
        "VitDetModel",
        {
            **VISION,
            "window_size": 2,
            "window_block_indices": [0],
            "residual_block_indices": [],
            "use_relative_position_embeddings": True,
            "pretrain_image_size": 32,
        },
    ),
    _vision(
        "videomae",
        "VideoMAEModel",
        {**VISION, "num_frames": 4, "tubelet_size": 2},
        inputs=_CLIP,
        family="video",
    ),
    _vision(
        "timesformer", "TimesformerModel", {**VISION, "num_frames": 4}, inputs=_CLIP, family="video"
    ),
    _vision(
        "vivit",
        "VivitModel",
        {**VISION, "num_frames": 4, "tubelet_size": [2, 8, 8]},
        inputs=_CLIP,
        family="video",
    ),
    _vision(
        "vjepa2",
        "VJEPA2Model",
        {
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "mlp_ratio": 2,
            "crop_size": 32,
            "patch_size": 8,
            "frames_per_clip": 4,
            "pred_hidden_size": 24,
            "pred_num_attention_heads": 4,
            "pred_num_hidden_layers": 1,
            "pred_num_mask_tokens": 2,
        },
        inputs={"pixel_values_videos": normal(1, 4, 3, 32, 32)},
        flags={"skip_predictor": True},
        family="video",
    ),
    _vision(
        "swin2sr",
        "Swin2SRForImageSuperResolution",
        {
            "image_size": 32,
            "patch_size": 1,
            "embed_dim": 12,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "upscale": 2,
        },
    ),
    _vision(
        "zoedepth",
        "ZoeDepthForDepthEstimation",
        {
            "backbone": None,
            "backbone_config": {
                "model_type": "beit",
                **VISION,
                "num_hidden_layers": 4,
                "use_relative_position_bias": True,
                "out_indices": [1, 2, 3, 4],
                "reshape_hidden_states": False,
            },
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
            "bottleneck_features": 16,
            "bin_embedding_dim": 8,
            "num_relative_features": 8,
        },
        family="depth",
    ),
    _vision(
        "prompt_depth_anything",
        "PromptDepthAnythingForDepthEstimation",
        {
            "backbone": None,
            "backbone_config": {
                "model_type": "dinov2",
                **{k: v for k, v in VISION.items() if k != "intermediate_size"},
                "num_hidden_layers": 4,
                "mlp_ratio": 2,
                "out_indices": [1, 2, 3, 4],
                "reshape_hidden_states": False,
                "apply_layernorm": True,
            },
            "patch_size": 8,
            "reassemble_hidden_size": 48,
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
            "head_hidden_size": 8,
        },
        inputs={**IMAGE, "prompt_depth": uniform(1, 1, 8, 8)},
        family="depth",
        gain=3.0,
    ),
    _vision(
        "d_fine",
        "DFineForObjectDetection",
        {
            **RT_DETR,
            "backbone_config": _HGNET,
            "feat_strides": [8, 16, 32],
            "decoder_n_points": [2, 2, 2],
            "max_num_bins": 8,
        },
        inputs=LARGER_IMAGE,
        family="detection",
    ),
    _vision(
        "dab_detr",
        "DabDetrForObjectDetection",
        {**DETR, "hidden_size": 32},
        inputs=LARGER_IMAGE,
        family="detection",
    ),
    _vision(
        "table_transformer",
        "TableTransformerForObjectDetection",
        DETR,
        inputs=LARGER_IMAGE,
        family="detection",
    ),
    _vision(
        "owlv2",
        "Owlv2ForObjectDetection",
        {
            "text_config": {**TEXT, "max_position_embeddings": 16},
            "vision_config": VISION,
            "projection_dim": 48,
        },
        inputs={"input_ids": tokens(2, 7), **IMAGE, "attention_mask": ones(2, 7)},
        family="detection",
    ),
    _vision(
        "maskformer",
        "MaskFormerForInstanceSegmentation",
        {
            "backbone_config": {**SWIN, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
            "decoder_config": {
                "model_type": "detr",
                "d_model": 32,
                "encoder_layers": 1,
                "decoder_layers": 2,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32,
                "num_queries": 6,
            },
            "fpn_feature_size": 32,
            "mask_feature_size": 32,
        },
        inputs=LARGER_IMAGE,
        family="segmentation",
    ),
    _vision(
        "eomt",
        "EomtForUniversalSegmentation",
        {
            **VISION,
            "num_upscale_blocks": 1,
            "num_queries": 6,
            "num_blocks": 1,
            "mlp_ratio": 2,
            "num_labels": 5,
        },
        family="segmentation",
    ),
    _vision(
        "vitmatte",
        "VitMatteForImageMatting",
        {
            "backbone_config": {
                "model_type": "vitdet",
                **VISION,
                "image_size": 64,
                "patch_size": 16,
                "num_channels": 4,
                "window_size": 2,
                "window_block_indices": [0],
                "residual_block_indices": [],
                "out_features": ["stage2"],
                "pretrain_image_size": 32,
            },
            "hidden_size": 48,
            "convstream_hidden_sizes": [8, 8, 16],
            "fusion_hidden_sizes": [16, 8, 8, 8],
        },
        inputs={"pixel_values": normal(1, 4, 64, 64)},
        family="segmentation",
    ),
    _vision(
        "sam2_image",
        "Sam2Model",
        {
            "vision_config": {
                "backbone_config": {
                    "model_type": "sam2_hiera_det_model",
                    "hidden_size": 8,
                    "num_attention_heads": 1,
                    "image_size": [64, 64],
                    "window_positional_embedding_background_size": [2, 2],
                    "blocks_per_stage": [1, 1, 2, 1],
                    "embed_dim_per_stage": [8, 16, 32, 64],
                    "num_attention_heads_per_stage": [1, 1, 2, 4],
                    "window_size_per_stage": [4, 2, 4, 2],
                    "global_attention_blocks": [3],
                },
                "backbone_channel_list": [64, 32, 16, 8],
                "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
                "fpn_hidden_size": 16,
            },
            "prompt_encoder_config": {
                "hidden_size": 16,
                "image_size": 64,
                "patch_size": 16,
                "mask_input_channels": 8,
            },
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 32,
                "num_attention_heads": 2,
                "num_hidden_layers": 2,
                "iou_head_hidden_dim": 16,
                "attention_downsample_rate": 2,
            },
        },
        inputs={
            **LARGER_IMAGE,
            "input_points": exactly([[[[20.0, 30.0]]]]),
            "input_labels": exactly([[[1]]]),
        },
        family="segmentation",
    ),
]
