"""Architectures built from their configurations with random weights, small and unmodified."""

from __future__ import annotations

from . import (
    audio,
    decoders,
    diffusers_models,
    diffusers_recent,
    multimodal,
    published_rows,
    recent_audio_and_multimodal,
    recent_text,
    recent_vision,
    recurrent,
    text,
    timm_models,
    torchvision_detection,
    torchvision_models,
    ultralytics_models,
    vision,
)
from .row import Row

ROWS: dict[str, Row] = {}
for _library in (
    recurrent,
    decoders,
    text,
    vision,
    audio,
    multimodal,
    recent_text,
    recent_vision,
    recent_audio_and_multimodal,
    timm_models,
    torchvision_models,
    torchvision_detection,
    ultralytics_models,
    diffusers_models,
    diffusers_recent,
):
    for _row in _library.ROWS:
        if _row.name in ROWS:
            raise ValueError(f"two rows have the name {_row.name}")
        ROWS[_row.name] = _row

# Models at their published sizes; `python tests/models/published_sizes.py` judges them.
PUBLISHED_SIZES: dict[str, Row] = published_rows.rows(ROWS.values())

# The cheapest models of each family, about two CPU seconds each; `make test` runs them.
FAST: tuple[str, ...] = (
    "lstm",
    "gru",
    "opt",
    "gpt2",
    "qwen2",
    "mistral",
    "gemma2",
    "mixtral",
    "gpt_oss",
    "mamba",
    "distilbert",
    "albert",
    "roberta",
    "fnet",
    "t5",
    "marian",
    "vit",
    "vit_msn",
    "dinov2",
    "convnextv2",
    "yolos",
    "vitpose",
    "segformer",
    "wav2vec2",
    "clip",
    "siglip",
    "patchtst",
    "timm_vit_tiny_patch16_224",
    "timm_mobilenetv3_small_050",
    "torchvision_convnext",
    "torchvision_visiontransformer",
    "torchvision_squeezenet1_1",
    "torchvision_video_resnet",
    "ultralytics_yolo11n",
    "diffusers_autoencoder_tiny",
    "diffusers_prior",
)

# One model of each family, which is also judged in half precision. Optical flow is left out: RAFT
# mixes float32 coordinates with half-precision features and fails in eager torch.
HALF_PRECISION: tuple[str, ...] = (
    "gru",
    "qwen2",
    "gemma3",
    "mixtral",
    "mamba",
    "distilbert",
    "t5",
    "vit_msn",
    "yolos",
    "segformer",
    "glpn",
    "vitpose",
    "wav2vec2",
    "dac",
    "siglip",
    "patchtst",
    "torchvision_swin3d",
    "diffusers_unet2d",
    "diffusers_autoencoder_kl",
    "diffusers_dit",
)
