"""`coreai-torch bench`: time calls of an asset."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Annotated

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
    from ..verification.timing import time_calls

    check_function(asset, to_torch(asset).functions, function)
    timed = time_calls(asset, runs=runs, warmup=warmup, size=size, function=function)
    load, seconds = timed.load, timed.seconds
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
