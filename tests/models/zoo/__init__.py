"""Architectures built from their configurations with random weights, small and unmodified."""

from __future__ import annotations

from . import (
    decoders,
    diffusers_models,
    multimodal,
    pictures,
    recurrent,
    speech,
    text,
    timm_models,
    torchvision_detection,
    torchvision_models,
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
    timm_models,
    torchvision_models,
    torchvision_detection,
    diffusers_models,
):
    for _row in _library.ROWS:
        if _row.name in ROWS:
            raise ValueError(f"two rows are called {_row.name}")
        ROWS[_row.name] = _row

# The cheapest of each family: what the fast suite has time for.
FAST: tuple[str, ...] = ()

# One of each family, judged in half precision too.
HALVED: tuple[str, ...] = (
    "gru",
    "qwen2",
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
    "torchvision_raft_small",
    "diffusers_unet2d",
    "diffusers_autoencoder_tiny",
    "diffusers_dit",
)
