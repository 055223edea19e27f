"""Compress a weight in slices of its first axis, so that no second full copy exists."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .memory import LARGE, release_freed_memory
from .schemes import SLICE, Layout, Parts, Scheme


def compress_in_slices(value: Tensor, scheme: Scheme, layout: Layout) -> tuple[Parts, float]:
    """Return the compressed parts of a weight and the relative error of decompressing them."""
    shared = scheme.shared(value, layout)
    step = scheme.step(layout)
    row = max(value[0].numel(), 1)
    rows = max(SLICE // (row * step), 1) * step
    pieces: list[Parts] = []
    wrong = total = 0.0
    for part in value.split(rows, 0):
        numbers = part.float()
        pieces.append(scheme.slice(numbers, layout, shared, value.dtype))
        dense = scheme.layer({**shared, **pieces[-1]}, value.dtype)().float()
        total += _square_sum(numbers)
        wrong += _square_sum(dense - numbers)
    joined = {name: _concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    del pieces
    if value.nbytes >= LARGE:
        release_freed_memory()
    error = math.sqrt(wrong / total) if total else math.sqrt(wrong)
    return {**shared, **joined}, error


def _square_sum(x: Tensor) -> float:
    """Return the sum of squares: of each row in float32, of the rows in float64."""
    rows = x.flatten(1) if x.dim() > 1 else x.reshape(1, -1)
    return float(torch.linalg.vector_norm(rows, dim=1).double().square().sum())


def _concatenate(pieces: list[Tensor]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    if pieces[0].element_size() > 1 or pieces[0].dtype in (torch.int8, torch.uint8, torch.bool):
        return torch.cat(pieces)
    # torch.cat does not support 8-bit floats.
    return torch.cat([piece.view(torch.uint8) for piece in pieces]).view(pieces[0].dtype)
