"""`coreai-torch bench`: time calls of an asset."""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import Json, answer, check_function

HELP = """Time calls of an asset on this machine, in a separate process.

\b
  coreai-torch bench net.aimodel
  coreai-torch bench net.aimodel --runs 200 --size 8 --json

Inputs are random; --size replaces dynamic sizes. On Linux the runtime is an interpreter: the times
are not representative of device performance.
"""


def bench(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    runs: Annotated[int, typer.Option(min=1, help="Calls to time.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed calls before that.")] = 3,
    size: Annotated[int, typer.Option(min=1, help="Value of dynamic sizes.")] = 1,
    function: Annotated[str, typer.Option(help="The function to call.")] = "main",
    as_json: Json = False,
) -> None:
    """Time calls."""
    from ..interpreter import to_torch
    from ..verification.isolation import Isolated, ProgramFile

    functions = to_torch(asset).functions
    check_function(asset, functions, function)
    signature = functions[function]
    feeds = {n: drawn(t, size) for n, t in signature.inputs.items()}
    states = {n: drawn(t, size) * 0 for n, t in signature.states.items()}
    began = time.perf_counter()
    with Isolated(ProgramFile(asset=asset.absolute()), entrypoint=function) as loaded:
        load = time.perf_counter() - began
        seconds = loaded.timed(feeds, states, warmup=warmup, runs=runs)
    data = {
        "runs": runs,
        "load_s": load,
        "min_ms": 1e3 * min(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "p90_ms": 1e3 * sorted(seconds)[math.ceil(0.9 * runs) - 1],
        "mean_ms": 1e3 * statistics.fmean(seconds),
    }
    lines = (
        f"{asset}: {data['median_ms']:.3f} ms per call (median of {runs}; min "
        f"{data['min_ms']:.3f}, 90 % below {data['p90_ms']:.3f}), loaded in {load:.2f} s"
    )
    answer(data, lines, as_json=as_json, ok=True)


def drawn(type_: Any, size: int) -> Any:
    """Return random values for a port; integers are zeros, which are valid indices."""
    import torch

    from ..numerics.arrays import array

    shape = [size if s < 0 else s for s in type_.shape]
    if type_.dtype.is_floating_point:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(type_.dtype)
        return array(drawn)
    return array(torch.zeros(shape, dtype=type_.dtype))
