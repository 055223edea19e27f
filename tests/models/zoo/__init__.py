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
    diffusers_models,
):
    for _row in _library.ROWS:
        if _row.name in ROWS:
            raise ValueError(f"two rows are called {_row.name}")
        ROWS[_row.name] = _row
