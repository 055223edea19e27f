"""Time calls of an asset in a separate process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..interpreter import to_torch
from ..numerics.arrays import array
from .isolation import Isolated, ProgramFile


@dataclass(frozen=True)
class TimedCalls:
    """The seconds of loading an asset, and of each call."""

    load: float
    seconds: tuple[float, ...]


def time_calls(
    asset: Path, *, runs: int = 50, warmup: int = 3, size: int = 1, function: str = "main"
) -> TimedCalls:
    """Time calls with random inputs; `size` replaces dynamic sizes."""
    signature = to_torch(asset).functions[function]
    feeds = {n: drawn(t, size) for n, t in signature.inputs.items()}
    states = {n: drawn(t, size) * 0 for n, t in signature.states.items()}
    began = time.perf_counter()
    with Isolated(ProgramFile(asset=asset.absolute()), entrypoint=function) as loaded:
        load = time.perf_counter() - began
        seconds = loaded.timed(feeds, states, warmup=warmup, runs=runs)
    return TimedCalls(load, tuple(seconds))


def drawn(type_: Any, size: int) -> Any:
    """Return random values for a port; integers are zeros, which are valid indices."""
    shape = [size if s < 0 else s for s in type_.shape]
    if type_.dtype.is_floating_point:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(type_.dtype)
        return array(drawn)
    return array(torch.zeros(shape, dtype=type_.dtype))
