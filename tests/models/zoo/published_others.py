"""Rows of `torchvision`, `ultralytics`, `diffusers`, torch and Qwen2-VL at published sizes.

Autoencoders and denoisers with convolutions get smaller images than published, with the published
widths: the convolution of the runtime on Linux takes minutes for 512 x 512 x 128 elements. Video
transformers get one frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import torchvision_detection, torchvision_models, ultralytics_models
from .diffusers_models import _build as diffusers_model
from .multimodal import QWEN2_VL_TOKENS, qwen2_vl_of_one_size
from .published_changes import QWEN2_VL_2B
from .recurrent import recurrent
from .row import Row, Tensor, exactly, normal, ones, uniform

_TIME = exactly([7])
_STABLE_DIFFUSION = {"layers_per_block": 1, "cross_attention_dim": 768}
_CONDITIONED = {
    "sample": normal(1, 4, 32, 32),
    "timestep": _TIME,
    "encoder_hidden_states": normal(1, 77, 768),
}


def _torchvision(name: str, path: str, inputs: dict[str, Tensor], **keywords: Any) -> Row:
    """Return a row of a published architecture, by its function below `torchvision.models`."""
    flags = keywords.pop("flags", {})
    build = torchvision_models._build
    return Row(
        f"torchvision_{name} published",
        "torchvision",
        "vision",
        lambda: build(path, keywords),
        inputs,
        flags=flags,
    )


def _picture(name: str, path: str = "", size: int = 224, **keywords: Any) -> Row:
    return _torchvision(name, path or name, {"x": normal(1, 3, size, size)}, **keywords)


# With the initial weights, an image of this size becomes nearly constant: the scores of two of the
# best boxes differ by 1e-13 to 1e-9, and eager torch orders them in another way in float64. With
# these gains they differ by at least 40 times the error of eager torch in float32.
_DETECTOR_GAINS = {
    "torchvision_retinanet": 2.2,
    "torchvision_fcos": 2.0,
    "torchvision_ssdlite": 5.0,
    "torchvision_region_proposals": 2.3,
}


def _detector(row: Row) -> Row:
    size = 320 if "ssdlite" in row.name else 800
    scaled = replace(row, gain=_DETECTOR_GAINS.get(row.name, row.gain))
    return torchvision_detection.at_size(scaled, size, regions=300)


# With the initial weights, eager torch selects other boxes if the image changes by 1e-7. The 300
# best scores of yolo26n have 41 different values; with this gain all differ, and a change of the
# image by 3e-7 keeps their order.
_ULTRALYTICS_GAINS = {"ultralytics_rtdetr-l": 2.5, "ultralytics_yolo26n_best": 2.3}


def _ultralytics(row: Row) -> Row:
    scaled = replace(row, gain=_ULTRALYTICS_GAINS.get(row.name, row.gain))
    return ultralytics_models.at_size(scaled, 640)


def _diffusers(name: str, class_name: str, config: dict[str, Any], **inputs: Tensor) -> Row:
    flags = config.pop("flags", {})
    return Row(
        f"diffusers_{name} published",
        "diffusers",
        "denoiser",
        lambda: diffusers_model(class_name, config),
        inputs,
        flags=flags,
    )


def _vq_model() -> Any:
    """Return a VQModel with codes of unit variance.

    The library draws codes below 1/8192. The nearest two then differ by 3e-9 in their distance to
    a latent, and eager torch chooses other codes in float32 than in float64.
    """
    import torch

    config = {
        "block_out_channels": (128, 256, 512),
        "layers_per_block": 1,
        "num_vq_embeddings": 8_192,
        "down_block_types": ("DownEncoderBlock2D",) * 3,
        "up_block_types": ("UpDecoderBlock2D",) * 3,
    }
    model = diffusers_model("VQModel", config)
    torch.nn.init.normal_(model.quantize.embedding.weight)
    return model


_TORCHVISION = [
    _picture("resnet18"),
    *(_picture(name, **keywords) for name, keywords in torchvision_models.CLASSIFIERS.items()),
    _picture(
        "visiontransformer",
        "VisionTransformer",
        image_size=224,
        patch_size=16,
        num_layers=1,
        num_heads=12,
        hidden_dim=768,
        mlp_dim=3_072,
    ),
    _picture("convnext", "convnext_tiny"),
    _picture("swin", "swin_t"),
    _picture("swin_v2", "swin_v2_t", 256),
    _picture("maxvit", "maxvit_t"),
    _picture(
        "deeplabv3_mobilenet_v3_large",
        "segmentation.deeplabv3_mobilenet_v3_large",
        520,
        weights_backbone=None,
    ),
    _torchvision(
        "lraspp_mobilenet_v3_large",
        "segmentation.lraspp_mobilenet_v3_large",
        {"input": normal(1, 3, 520, 520)},
        weights_backbone=None,
    ),
    _torchvision("video_resnet", "video.r3d_18", {"x": normal(1, 3, 16, 112, 112)}),
    _torchvision("mvit", "video.mvit_v2_s", {"x": normal(1, 3, 16, 224, 224)}),
    _torchvision("swin3d", "video.swin3d_t", {"x": normal(1, 3, 16, 224, 224)}),
    _torchvision(
        "raft_small",
        "optical_flow.raft_small",
        {"image1": uniform(1, 3, 368, 496), "image2": uniform(1, 3, 368, 496)},
        flags={"num_flow_updates": 2},
    ),
]

_DIFFUSERS = [
    _diffusers(
        "unet2d_condition",
        "UNet2DConditionModel",
        _STABLE_DIFFUSION,
        **_CONDITIONED,
    ),
    _diffusers(
        "unet2d",
        "UNet2DModel",
        {"sample_size": 32, "layers_per_block": 1},
        sample=normal(1, 3, 32, 32),
        timestep=_TIME,
    ),
    _diffusers(
        "controlnet",
        "ControlNetModel",
        _STABLE_DIFFUSION,
        **_CONDITIONED,
        controlnet_cond=normal(1, 3, 256, 256),
    ),
    _diffusers(
        "autoencoder_kl",
        "AutoencoderKL",
        {
            "block_out_channels": (128, 256, 512, 512),
            "layers_per_block": 1,
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
        },
        sample=normal(1, 3, 128, 128),
    ),
    Row(
        "diffusers_vq_model published",
        "diffusers",
        "denoiser",
        _vq_model,
        {"sample": normal(1, 3, 128, 128)},
    ),
    _diffusers("autoencoder_tiny", "AutoencoderTiny", {}, sample=normal(1, 3, 128, 128)),
    _diffusers(
        "dit",
        "DiTTransformer2DModel",
        {"num_layers": 1, "num_embeds_ada_norm": 1_000, "out_channels": 8, "sample_size": 32},
        hidden_states=normal(1, 4, 32, 32),
        timestep=_TIME,
        class_labels=exactly([3]),
    ),
    _diffusers(
        "pixart",
        "PixArtTransformer2DModel",
        {"num_layers": 1, "use_additional_conditions": False, "caption_channels": 4_096},
        hidden_states=normal(1, 4, 128, 128),
        timestep=_TIME,
        encoder_hidden_states=normal(1, 120, 4_096),
    ),
    _diffusers(
        "sd3",
        "SD3Transformer2DModel",
        {"num_layers": 2, "num_attention_heads": 24, "caption_projection_dim": 1_536},
        hidden_states=normal(1, 16, 64, 64),
        encoder_hidden_states=normal(1, 154, 4_096),
        pooled_projections=normal(1, 2_048),
        timestep=_TIME,
    ),
    _diffusers(
        "flux",
        "FluxTransformer2DModel",
        {"num_layers": 1, "num_single_layers": 1, "guidance_embeds": True},
        hidden_states=normal(1, 1_024, 64),
        encoder_hidden_states=normal(1, 256, 4_096),
        pooled_projections=normal(1, 768),
        timestep=exactly([0.5]),
        guidance=exactly([3.5]),
        img_ids=normal(1_024, 3),
        txt_ids=normal(256, 3),
    ),
    _diffusers(
        "sana",
        "SanaTransformer2DModel",
        {"num_layers": 1},
        hidden_states=normal(1, 32, 32, 32),
        encoder_hidden_states=normal(1, 300, 2_304),
        timestep=_TIME,
    ),
    _diffusers(
        "cogvideox",
        "CogVideoXTransformer3DModel",
        {"num_layers": 1, "sample_frames": 1},
        hidden_states=normal(1, 1, 16, 60, 90),
        encoder_hidden_states=normal(1, 226, 4_096),
        timestep=_TIME,
    ),
    _diffusers(
        "prior",
        "PriorTransformer",
        {"num_layers": 1},
        hidden_states=normal(1, 768),
        timestep=_TIME,
        proj_embedding=normal(1, 768),
        encoder_hidden_states=normal(1, 77, 768),
    ),
    _diffusers(
        "wan",
        "WanTransformer3DModel",
        {"num_layers": 1, "num_attention_heads": 12, "ffn_dim": 8_960},
        hidden_states=normal(1, 16, 1, 60, 104),
        timestep=_TIME,
        encoder_hidden_states=normal(1, 512, 4_096),
    ),
    _diffusers(
        "ltx",
        "LTXVideoTransformer3DModel",
        {"num_layers": 1, "flags": {"num_frames": 4, "height": 16, "width": 24}},
        hidden_states=normal(1, 1_536, 128),
        encoder_hidden_states=normal(1, 128, 4_096),
        timestep=_TIME,
        encoder_attention_mask=ones(1, 128),
    ),
    _diffusers(
        "auraflow",
        "AuraFlowTransformer2DModel",
        {"num_mmdit_layers": 1, "num_single_dit_layers": 1},
        hidden_states=normal(1, 4, 64, 64),
        encoder_hidden_states=normal(1, 256, 2_048),
        timestep=exactly([0.7]),
    ),
    _diffusers(
        "qwen_image",
        "QwenImageTransformer2DModel",
        {"num_layers": 1, "flags": {"img_shapes": [[(1, 32, 32)]]}},
        hidden_states=normal(1, 1_024, 64),
        encoder_hidden_states=normal(1, 128, 3_584),
        encoder_hidden_states_mask=ones(1, 128),
        timestep=exactly([0.7]),
    ),
    _diffusers(
        "flux2",
        "Flux2Transformer2DModel",
        {
            "num_layers": 1,
            "num_single_layers": 1,
            "num_attention_heads": 24,
            "joint_attention_dim": 7_680,
        },
        hidden_states=normal(1, 1_024, 128),
        encoder_hidden_states=normal(1, 128, 7_680),
        timestep=exactly([0.7]),
        img_ids=exactly([[0.0, n // 32, n % 32, 0.0] for n in range(1_024)]),
        txt_ids=exactly([[0.0, 0.0, 0.0, float(n)] for n in range(128)]),
        guidance=exactly([4.0]),
    ),
    _diffusers("autoencoder_oobleck", "AutoencoderOobleck", {}, sample=normal(1, 2, 8_192)),
    _diffusers(
        "autoencoder_dc",
        "AutoencoderDC",
        {
            "in_channels": 3,
            "latent_channels": 32,
            "encoder_layers_per_block": (1, 1, 1, 1, 1, 1),
            "decoder_layers_per_block": (1, 1, 1, 1, 1, 1),
        },
        sample=normal(1, 3, 128, 128),
    ),
    _diffusers(
        "autoencoder_video",
        "AutoencoderKLCogVideoX",
        {"layers_per_block": 1},
        sample=normal(1, 3, 5, 64, 64),
    ),
    _diffusers(
        "autoencoder_wan",
        "AutoencoderKLWan",
        {"num_res_blocks": 1},
        sample=normal(1, 3, 5, 64, 64),
    ),
]

_RECURRENT = [
    Row(
        f"{kind.lower()} published",
        "torch",
        "recurrent",
        lambda kind=kind: recurrent(kind, 256, 512),
        {"x": normal(1, 1_000, 256)},
    )
    for kind in ("LSTM", "GRU")
]

_QWEN2_VL = {
    "text_config": {
        "vocab_size": 32_000,
        "num_hidden_layers": 1,
        "use_cache": False,
        **QWEN2_VL_2B,
    },
    "vision_config": {"depth": 1, "hidden_size": 1_536, "patch_size": 14},
    **QWEN2_VL_TOKENS,
}

ROWS = [
    *_TORCHVISION,
    *map(_detector, torchvision_detection.ROWS[:-1]),
    *map(_ultralytics, ultralytics_models.ROWS),
    *_DIFFUSERS,
    *_RECURRENT,
    qwen2_vl_of_one_size("qwen2_vl_of_one_size 448x448", _QWEN2_VL, 32, list(range(5, 37))),
]
