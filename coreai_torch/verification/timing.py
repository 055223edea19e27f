"""Time calls of an asset in a separate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..asset.port_sizes import PortSizes
from ..interpreter import to_torch
from ..numerics.arrays import array
from ..stopwatch import Stopwatch
from .isolation import Isolated, ProgramFile


@dataclass(frozen=True)
class TimedCalls:
    """The seconds of loading an asset, and of each call, and the dynamic sizes of the inputs."""

    load: float
    seconds: tuple[float, ...]
    sizes: str = ""


def time_calls(
    asset: Path,
    *,
    runs: int = 50,
    warmup: int = 3,
    size: Mapping[str, int] | int | None = None,
    function: str = "main",
) -> TimedCalls:
    """Time calls with random inputs.

    `size` has dynamic sizes by name, or one number for all; the others are those of the example.
    """
    signature = to_torch(asset).functions[function]
    sizes = PortSizes.of(asset, function, size)
    feeds = {n: drawn(t, sizes.shape(n, t)) for n, t in signature.inputs.items()}
    states = {n: drawn(t, sizes.shape(n, t)) * 0 for n, t in signature.states.items()}
    watch = Stopwatch()
    with Isolated(ProgramFile(asset=asset.absolute()), entrypoint=function) as loaded:
        load = watch.seconds
        seconds = loaded.timed(feeds, states, warmup=warmup, runs=runs)
    return TimedCalls(load, tuple(seconds), str(sizes))


def drawn(type_: Any, shape: Sequence[int]) -> Any:
    """Return random values for a port; integers are zeros, which are valid indices."""
    if type_.dtype.is_floating_point:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(type_.dtype)
        return array(drawn)
    return array(torch.zeros(shape, dtype=type_.dtype))
