"""Vision models of `transformers`: classification, detection, segmentation, depth."""

from __future__ import annotations

from typing import Any

from .row import Dynamic, Row, exactly, normal
from .small_configs import IMAGE, LARGER_IMAGE, TWO_STACKS, VISION
from .transformers_rows import hf

_RESNET: dict[str, Any] = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 16, 24],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_BACKBONE = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": {**_RESNET, "out_features": ["stage4"]},
}
SWIN: dict[str, Any] = {
    "model_type": "swin",
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 8,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 2, 2, 4],
    "window_size": 4,
}


def _vision(name: str, class_name: str, config: dict[str, Any] = VISION, **more: Any) -> Row:
    inputs = more.pop("inputs", IMAGE)
    return hf(name, class_name, more.pop("family", "vision"), config, inputs, **more)


def _detection(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return _vision(name, class_name, config, family="detection", **{"inputs": LARGER_IMAGE, **more})


def _segmentation(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    return _vision(
        name, class_name, config, family="segmentation", **{"inputs": LARGER_IMAGE, **more}
    )


DETR = {
    **_BACKBONE,
    **TWO_STACKS,
    "d_model": 32,
    "num_queries": 6,
    "num_labels": 5,
}
_THREE_STAGES = {"backbone_config": {**_RESNET, "out_features": ["stage2", "stage3", "stage4"]}}
_RT_RESNET = {
    "model_type": "rt_detr_resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 16, 24],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
RT_DETR: dict[str, Any] = {
    "backbone_config": _RT_RESNET,
    "backbone": None,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [16, 16, 24],
    "encoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "d_model": 32,
    "num_queries": 6,
    "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 64,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_n_points": 2,
    "num_labels": 5,
    "num_denoising": 0,
    "hidden_expansion": 1.0,
    "eval_size": None,
    "anchor_image_size": None,
}

ROWS = [
    _vision(
        "vit",
        "ViTModel",
        dynamic=Dynamic({"pixel_values": (0,)}, {"pixel_values": normal(3, 3, 32, 32)}),
        inputs={"pixel_values": normal(2, 3, 32, 32)},
    ),
    _vision("beit", "BeitModel", {**VISION, "use_relative_position_bias": True}),
    _vision("dinov2", "Dinov2Model", VISION),
    _vision("dinov3", "DINOv3ViTModel", VISION),
    _vision("swin", "SwinModel", {**SWIN, "image_size": 32, "depths": [2, 2], "num_heads": [2, 2]}),
    _vision(
        "swinv2",
        "Swinv2Model",
        {**SWIN, "model_type": "swinv2", "image_size": 32, "depths": [2, 2], "num_heads": [2, 2]},
    ),
    _vision(
        "convnextv2",
        "ConvNextV2Model",
        {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2},
    ),
    _vision(
        "resnet",
        "ResNetModel",
        {
            "embedding_size": 16,
            "hidden_sizes": [16, 32],
            "depths": [1, 2],
            "layer_type": "bottleneck",
        },
        inputs={"pixel_values": normal(2, 3, 48, 48)},
        dynamic=Dynamic({"pixel_values": (0, 2, 3)}, {"pixel_values": normal(3, 3, 64, 40)}),
    ),
    _vision(
        "regnet",
        "RegNetModel",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 16, 24],
            "depths": [1, 1, 2, 1],
            "groups_width": 4,
        },
    ),
    _vision(
        "mobilenet_v2",
        "MobileNetV2Model",
        {"depth_multiplier": 0.35, "image_size": 64},
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "mobilevit",
        "MobileViTModel",
        {
            "image_size": 64,
            "hidden_sizes": [24, 32, 40],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 48],
        },
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "efficientnet",
        "EfficientNetModel",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320, "image_size": 64},
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "cvt",
        "CvtModel",
        {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "hiera",
        "HieraModel",
        {"image_size": [64, 64], "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 4]},
        inputs=LARGER_IMAGE,
    ),
    _vision(
        "focalnet", "FocalNetModel", {"image_size": 32, "embed_dim": 8, "depths": [1, 1, 1, 1]}
    ),
    _vision("vit_msn", "ViTMSNModel"),
    _vision(
        "dpt",
        "DPTForDepthEstimation",
        {
            **VISION,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 16, 24, 24],
            "fusion_hidden_size": 16,
            "is_hybrid": False,
            "num_labels": 5,
        },
        family="depth",
        gain=5.0,
    ),
    _vision(
        "depth_anything",
        "DepthAnythingForDepthEstimation",
        {
            "backbone_config": {
                **VISION,
                "model_type": "dinov2",
                "num_hidden_layers": 4,
                "patch_size": 14,
                "image_size": 42,
                "out_indices": [1, 2, 3, 4],
                "apply_layernorm": True,
                "reshape_hidden_states": False,
            },
            "patch_size": 14,
            "reassemble_hidden_size": 48,
            "neck_hidden_sizes": [8, 16, 24, 24],
            "fusion_hidden_size": 16,
        },
        inputs={"pixel_values": normal(1, 3, 42, 42)},
        family="depth",
    ),
    _vision(
        "glpn",
        "GLPNForDepthEstimation",
        {
            "hidden_sizes": [8, 16, 16, 24],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 16,
        },
        inputs=LARGER_IMAGE,
        family="depth",
    ),
    _vision(
        "superpoint",
        "SuperPointForKeypointDetection",
        {
            "encoder_hidden_sizes": [8, 8, 16, 16],
            "decoder_hidden_size": 16,
            "descriptor_decoder_dim": 16,
        },
        inputs=LARGER_IMAGE,
        family="keypoints",
    ),
    _vision(
        "vitpose",
        "VitPoseForPoseEstimation",
        {
            "backbone_config": {
                "model_type": "vitpose_backbone",
                "image_size": [32, 32],
                "patch_size": [8, 8],
                "hidden_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "mlp_ratio": 2,
                "out_indices": [2],
            },
            "num_labels": 5,
        },
        family="keypoints",
    ),
    _detection("detr", "DetrForObjectDetection", DETR),
    _detection("conditional_detr", "ConditionalDetrForObjectDetection", DETR),
    _detection(
        "deformable_detr",
        "DeformableDetrForObjectDetection",
        {
            **DETR,
            **_THREE_STAGES,
            "num_feature_levels": 4,
            "encoder_n_points": 2,
            "decoder_n_points": 2,
        },
        inputs={"pixel_values": normal(1, 3, 96, 96)},
    ),
    _detection("rt_detr", "RTDetrForObjectDetection", RT_DETR, gain=6.0),
    _detection("rt_detr_v2", "RTDetrV2ForObjectDetection", RT_DETR, gain=6.0),
    _detection(
        "yolos",
        "YolosForObjectDetection",
        {**VISION, "image_size": [32, 32], "num_detection_tokens": 6, "num_labels": 5},
        inputs=IMAGE,
    ),
    _segmentation(
        "segformer",
        "SegformerForSemanticSegmentation",
        {
            "hidden_sizes": [8, 16, 16, 24],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "sr_ratios": [8, 4, 2, 1],
            "decoder_hidden_size": 16,
            "num_labels": 5,
        },
    ),
    _segmentation(
        "mask2former",
        "Mask2FormerForUniversalSegmentation",
        {
            "backbone_config": {**SWIN, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
            "feature_size": 32,
            "mask_feature_size": 32,
            "hidden_dim": 32,
            "encoder_feedforward_dim": 64,
            "dim_feedforward": 64,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "num_attention_heads": 4,
            "num_queries": 6,
            "num_labels": 5,
        },
    ),
    _segmentation(
        "upernet",
        "UperNetForSemanticSegmentation",
        {
            "backbone_config": {
                "model_type": "convnext",
                "hidden_sizes": [8, 16, 16, 24],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage1", "stage2", "stage3", "stage4"],
            },
            "hidden_size": 16,
            "num_labels": 5,
            "use_auxiliary_head": True,
            "auxiliary_in_channels": 16,
            "auxiliary_channels": 8,
        },
    ),
    _segmentation(
        "mobilevit_deeplab",
        "MobileViTForSemanticSegmentation",
        {
            "image_size": 64,
            "hidden_sizes": [24, 32, 40],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 48],
            "num_labels": 5,
            "aspp_out_channels": 16,
        },
    ),
    _segmentation(
        "sam",
        "SamModel",
        {
            "vision_config": {
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 64,
                "patch_size": 8,
                "mlp_dim": 64,
                "output_channels": 32,
                "window_size": 4,
                "global_attn_indexes": [1],
                "num_pos_feats": 16,
            },
            "prompt_encoder_config": {
                "hidden_size": 32,
                "image_size": 64,
                "patch_size": 8,
                "mask_input_channels": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 32,
                "mlp_dim": 64,
                "num_attention_heads": 4,
                "iou_head_hidden_dim": 16,
            },
        },
        inputs={
            **LARGER_IMAGE,
            "input_points": exactly([[[[20.0, 30.0], [40.0, 10.0]]]]),
            "input_labels": exactly([[[1, 0]]]),
        },
    ),
]
