"""Architectures built from their configurations with random weights, small and unmodified."""

from __future__ import annotations

from . import (
    decoders,
    diffusers_models,
    diffusers_recent,
    multimodal,
    pictures,
    recent,
    recent_senses,
    recent_sights,
    recurrent,
    speech,
    text,
    timm_models,
    torchvision_detection,
    torchvision_models,
    ultralytics_models,
)
from .row import Row

ROWS: dict[str, Row] = {}
for _library in (
    recurrent,
    decoders,
    text,
    pictures,
    speech,
    multimodal,
    recent,
    recent_sights,
    recent_senses,
    timm_models,
    torchvision_models,
    torchvision_detection,
    ultralytics_models,
    diffusers_models,
    diffusers_recent,
):
    for _row in _library.ROWS:
        if _row.name in ROWS:
            raise ValueError(f"two rows are called {_row.name}")
        ROWS[_row.name] = _row

# The cheapest of each family, two seconds of processor time each: what the fast suite has time for.
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

# One of each family, judged in half precision too. None of optical flow: RAFT mixes its own
# float32 coordinates with half features and does not run in eager torch.
HALVED: tuple[str, ...] = (
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
