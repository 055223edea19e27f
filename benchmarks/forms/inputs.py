"""Inputs of the measured calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Calls = dict[str, Callable[[], tuple[Callable[..., Any] | nn.Module, tuple[Tensor, ...]]]]


def floats(*shape: int) -> tuple[Tensor]:
    return (torch.randn(shape),)


def ids(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape)
