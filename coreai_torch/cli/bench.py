"""`coreai-torch bench`: how long a call takes."""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import Json, answer, check_function

HELP = """Time calls of an asset on this machine, in a process of its own.

\b
  coreai-torch bench net.aimodel
  coreai-torch bench net.aimodel --runs 200 --size 8 --json

Inputs are random; sizes that may vary are --size. On Linux this is the run time's interpreter,
which tells nothing of a device.
"""


def bench(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    runs: Annotated[int, typer.Option(min=1, help="Calls to time.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Calls before that.")] = 3,
    size: Annotated[int, typer.Option(min=1, help="For sizes that may vary.")] = 1,
    function: Annotated[str, typer.Option(help="The function to call.")] = "main",
    as_json: Json = False,
) -> None:
    """Time."""
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
    told = {
        "runs": runs,
        "load_s": load,
        "min_ms": 1e3 * min(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "p90_ms": 1e3 * sorted(seconds)[math.ceil(0.9 * runs) - 1],
        "mean_ms": 1e3 * statistics.fmean(seconds),
    }
    lines = (
        f"{asset}: {told['median_ms']:.3f} ms a call (median of {runs}; least "
        f"{told['min_ms']:.3f}, 90 % under {told['p90_ms']:.3f}), loaded in {load:.2f} s"
    )
    answer(told, lines, as_json=as_json, ok=True)


def drawn(type_: Any, size: int) -> Any:
    """Values of a port; integers are zeros, which every index may be."""
    import torch

    from ..numerics.arrays import array

    shape = [size if s < 0 else s for s in type_.shape]
    if type_.dtype.is_floating_point:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(type_.dtype)
        return array(drawn)
    return array(torch.zeros(shape, dtype=type_.dtype))
