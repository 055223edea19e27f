"""The compute units of this machine, and one run of an asset on one of them in a child process."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from coreai.runtime import AIModel, NDArray, SpecializationOptions

from ..asset.worker import to_numpy
from ..sandbox.call import call
from ..sandbox.child import Ended
from ..stopwatch import Stopwatch, call_seconds

RUNTIME = "runtime"  # the runtime that coreai-core installs, which has no units to choose from
KINDS = ("cpu", "gpu", "neural_engine")
_WARM_UP = 3


@dataclass(frozen=True)
class Ran:
    """What happened: the outputs and times, or how it failed or ended."""

    outputs: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    load_s: float = 0.0
    median_ms: float = 0.0
    error: str = ""
    crashed: bool = False


def units() -> tuple[str, ...]:
    """Return the compute units that programs can be loaded for; elsewhere `RUNTIME` alone."""
    if sys.platform == "darwin":
        os.environ.setdefault("USE_OS_COREAI", "1")
    return KINDS if SpecializationOptions.is_supported() else (RUNTIME,)


def options_for(unit: str) -> Any:
    """Return the options that prefer a unit; None for the installed runtime."""
    if unit == RUNTIME:
        return None
    if unit == "cpu":
        return SpecializationOptions.cpu_only()
    from coreai.runtime import ComputeUnitKind  # on macOS only

    kind = getattr(ComputeUnitKind, unit)()
    return SpecializationOptions.from_preferred_compute_unit_kind(kind)


def run(asset: Path, unit: str, inputs: dict[str, np.ndarray[Any, Any]], runs: int) -> Ran:
    """Load an asset for a unit, call it and time it, in a new process."""
    try:
        return call(_run, asset, unit, inputs, runs)
    except Ended as ended:
        return Ran(error="\n".join([ended.why, *ended.last_lines()]), crashed=True)
    except Exception as error:
        return Ran(error=f"{type(error).__name__}: {error}")


def _run(asset: Path, unit: str, inputs: dict[str, np.ndarray[Any, Any]], runs: int) -> Ran:
    return asyncio.run(_measured(asset, unit, inputs, runs))


async def _measured(
    asset: Path, unit: str, inputs: dict[str, np.ndarray[Any, Any]], runs: int
) -> Ran:
    from ..asset.resources import asset_at

    watch = Stopwatch()
    async with asset_at(asset).executable() as host:  # compiled for the installed runtime
        model = host if unit == RUNTIME else await AIModel.load(asset, options_for(unit))
        function = model.load_function("main")
        load = watch.seconds
        feeds = {name: NDArray(array) for name, array in inputs.items()}
        found = await function(feeds)
        outputs = {name: np.array(to_numpy(value), copy=True) for name, value in found.items()}
        seconds = await call_seconds(function, feeds, {}, warmup=_WARM_UP, runs=runs)
    return Ran(outputs, load, 1e3 * statistics.median(seconds))
