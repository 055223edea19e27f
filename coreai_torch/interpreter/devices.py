"""Settings of torch that change numbers on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Multiply float32 in float32, and accumulate half floats in float32, on a GPU.

    By default torch 2.11 lets cuDNN convolve float32 in TF32, whose error is 1e-3, and lets cuBLAS
    add partial sums of half floats in half floats.
    """
    if device.type != "cuda":
        yield
        return
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in _settings()]
    try:
        for owner, name, value in _settings():
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)


def _settings() -> list[tuple[Any, str, Any]]:
    products = torch.backends.cuda.matmul
    return [
        (products, "fp32_precision", "ieee"),
        (torch.backends.cudnn.conv, "fp32_precision", "ieee"),
        (products, "allow_fp16_reduced_precision_reduction", False),
        (products, "allow_bf16_reduced_precision_reduction", False),
    ]
