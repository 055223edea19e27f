"""Measure one call in this fresh process; print the figures as JSON.

Times are of the processor, summed over threads, so that other processes do not count. The peak
memory is read last: it covers export, conversion, loading, running and eager torch.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.ops.cases import CASES, define_nms

# A runtime thread may use the interpreter while it shuts down, which aborts the process.
atexit.register(time.sleep, 0.3)
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
BUDGET = 2.0  # seconds spent on repeating a run


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def best(run: Any) -> float:
    """Return the shortest of a few runs, in seconds."""
    times: list[float] = []
    while not times or (sum(times) < BUDGET and len(times) < 5):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def error(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """Return the greatest difference, relative to the greatest number of each output."""
    worst = 0.0
    for got, want in zip(found, wanted, strict=True):
        if got.shape != want.shape:
            return float("inf")
        if not want.numel():
            continue
        kind = torch.complex128 if want.is_complex() else torch.float64
        got, want = got.to(kind), want.to(kind)
        scale = max(want.abs().nan_to_num(0, 0, 0).max().item(), 1e-30)
        worst = max(worst, (got - want).abs().nan_to_num(0, 0, 0).max().item() / scale)
    return worst


async def timed(program: Any, args: tuple[Any, ...], wanted: list[torch.Tensor]) -> dict[str, Any]:
    from coreai.runtime import NDArray

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        asset = program.save_asset(Path(folder) / "m.aimodel")
        async with asset.executable() as model:
            function = model.load_function("main")
            load = time.process_time() - start
            feeds = {
                name: NDArray(a.to(NARROW.get(a.dtype, a.dtype)).contiguous().numpy())
                for name, a in zip(function.desc.input_names, args, strict=True)
            }
            result = await function(feeds)
            names = function.desc.output_names
            found = [torch.from_numpy(result[n].numpy().copy()) for n in names]
            times: list[float] = []
            while not times or (sum(times) < BUDGET and len(times) < 5):
                start = time.process_time()
                await function(feeds)
                times.append(time.process_time() - start)
    return {"load": load, "run": min(times), "error": error(found, wanted)}


def measure(name: str) -> dict[str, Any]:
    import coreai_torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    function, args = CASES[name]()
    module = function if isinstance(function, torch.nn.Module) else Call(function)
    start = time.process_time()
    program = coreai_torch.convert(module.eval(), args, verify=False)
    figures: dict[str, Any] = {"convert": time.process_time() - start}
    before = peak_mb()
    with torch.no_grad():
        wanted = [w for w in pytree.tree_leaves(module(*args)) if isinstance(w, torch.Tensor)]
        figures["eager"] = best(lambda: module(*args))
    figures |= asyncio.run(timed(program, args, wanted))
    return figures | {"peak": peak_mb(), "grown": peak_mb() - before}


if __name__ == "__main__":
    library = define_nms() if sys.argv[1].startswith("nms") else None
    print("\n" + json.dumps(measure(sys.argv[1])))
