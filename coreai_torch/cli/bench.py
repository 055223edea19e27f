"""`coreai-torch bench`: time calls of an asset."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from ..formatting import duration
from .console import Json, Size, answer, check_function

_TRACED = 5  # calls in a trace, which has an event for every op of every call

HELP = """Time calls of an asset on this machine, in a separate process.

\b
  coreai-torch bench net.aimodel
  coreai-torch bench net.aimodel --runs 200 --size h=480,w=640 --json
  coreai-torch bench net.aimodel --trace net.json

Inputs are random; dynamic sizes are those of the example inputs, or those of --size. --trace also
records calls under the profiler, as a trace of modules and ops that ui.perfetto.dev and
chrome://tracing open. On Linux the runtime is an interpreter: the times are not representative of
device performance.
"""


def bench(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    runs: Annotated[int, typer.Option(min=1, help="Calls to time.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed calls before that.")] = 3,
    size: Size = None,
    function: Annotated[str, typer.Option(help="The function to call.")] = "main",
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace of calls to this .json, for Perfetto.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Time calls."""
    from ..asset.port_sizes import parse_sizes
    from ..interpreter import to_torch
    from ..verification.timing import time_calls

    check_function(asset, to_torch(asset).functions, function)
    sizes = parse_sizes(size or ())
    timed = time_calls(asset, runs=runs, warmup=warmup, size=sizes, function=function)
    load, seconds = timed.load, timed.seconds
    data: dict[str, Any] = {
        "runs": runs,
        "load_s": load,
        "sizes": timed.sizes,
        "min_ms": 1e3 * min(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "p90_ms": 1e3 * sorted(seconds)[math.ceil(0.9 * runs) - 1],
        "mean_ms": 1e3 * statistics.fmean(seconds),
    }
    median, least, most = (duration(data[key] / 1e3) for key in ("median_ms", "min_ms", "p90_ms"))
    at = f" at {timed.sizes}" if timed.sizes else ""
    lines = [
        f"{asset}: {median} per call of {function}{at} (median of {runs}; min {least}, "
        f"90 % below {most}), loaded in {duration(load)}"
    ]
    if trace is not None:
        from .profiling import traced

        traced(asset, function, min(runs, _TRACED), sizes).write(trace)
        data |= {"trace": trace}
        lines.append(f"{trace}: open it in ui.perfetto.dev or chrome://tracing")
    answer(data, lines, as_json=as_json, ok=True)
