"""Measure one call in a fresh process; print the figures as JSON.

Run it as a script, so that its environment decides which `coreai_torch` is imported: with
`--published`, that is the published converter, which runs in its own environment. Without a name,
calls are read from stdin, and each is measured in a fork.

Times are of the processor, summed over threads, so that other processes do not count. The peak
memory covers export, conversion, eager torch, loading and the first run: the runtime never frees
the outputs of a run (coreai-core 1.0.0b3).
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

# The package of this file without its parent: beside that lies a `coreai_torch`, which would hide
# the published one.
sys.path.insert(0, str(Path(__file__).parents[1]))

from ops.cases import CASES, UNSTABLE_SORTS, define_nms

# A runtime thread may use the interpreter while it shuts down, which aborts the process.
atexit.register(time.sleep, 0.3)
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
BUDGET = 2.0  # seconds spent on repeating a run
# Seconds that runs of a program are repeated for: of five runs of 3 ms beside another process, the
# shortest took up to 10 ms.
SHORTEST = 0.3
SECONDS = 300  # limit of one call
Judge = Callable[[list[torch.Tensor]], float]  # returns the error of the outputs


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
    """Return the shortest of a few runs, in seconds.

    A short run is repeated until it takes 50 ms: on a busy machine, the processor clock may not
    advance for several milliseconds.
    """
    times: list[float] = []
    repeats = 1
    while not times or (sum(times) * repeats < BUDGET and len(times) < 5):
        start, wall = time.process_time(), time.monotonic()
        for _ in range(repeats):
            run()
        taken = time.process_time() - start
        if taken < 0.05 and time.monotonic() - wall < BUDGET / 2:
            times, repeats = [], repeats * 4
        else:
            times.append(taken / repeats)
    return min(times)


def error(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """Return the greatest difference, relative to the greatest finite number of each output.

    NaN equals NaN and an infinity equals itself; any other difference from them is infinite.
    """
    worst = 0.0
    for got, want in zip(found, wanted, strict=True):
        if got.shape != want.shape or got.is_complex() != want.is_complex():
            return float("inf")
        if not want.numel():
            continue
        got, want = _as_float64(got), _as_float64(want)
        is_same = (got == want) | (got.isnan() & want.isnan())
        away = torch.where(is_same, 0.0, (got - want).abs())
        away = away.nan_to_num(float("inf"), float("inf"))
        scale = max(want.abs().nan_to_num(0, 0, 0).max().item(), 1e-30)
        worst = max(worst, away.max().item() / scale)
    return worst


def _as_float64(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.to(torch.complex128)) if x.is_complex() else x.double()


def sort_error(found: list[torch.Tensor], wanted: list[torch.Tensor], x: torch.Tensor) -> float:
    """Return the error of a sort along the last axis that is not stable.

    Equal numbers may have any order; the places must be a permutation that gives the values.
    """
    values, places = found
    if values.shape != x.shape or places.shape != x.shape:
        return float("inf")
    all_places = torch.arange(x.shape[-1]).expand(x.shape)
    if not torch.equal(places.long().sort(-1).values, all_places):
        return float("inf")
    elements = x.gather(-1, places.long())
    is_same = (elements == values) | (elements.isnan() & values.isnan())
    return error([values], wanted[:1]) if bool(is_same.all()) else float("inf")


async def timed(program: Any, args: tuple[Any, ...], judge: Judge) -> dict[str, Any]:
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
            peak = peak_mb()
            times: list[float] = []
            while not times or sum(times) < (SHORTEST if len(times) >= 5 else BUDGET):
                start = time.process_time()
                await function(feeds)
                times.append(time.process_time() - start)
    return {"load": load, "run": min(times), "error": judge(found), "peak": peak}


def convert(
    module: torch.nn.Module, args: tuple[Any, ...], published: bool, dynamic: bool = False
) -> Any:
    """Convert with the `coreai_torch` of this environment; both converters optimize.

    `dynamic` makes the first axis of the first argument dynamic.
    """
    import coreai_torch

    if not published:
        shapes = ({0: torch.export.Dim.DYNAMIC}, *[None] * (len(args) - 1)) if dynamic else None
        nested = isinstance(module, Call)  # its forward has one parameter, `*args`
        shapes = (shapes,) if nested and shapes else shapes
        return coreai_torch.convert(module, args, dynamic_shapes=shapes, verify=False)
    with torch.no_grad():
        program = torch.export.export(module, args)
        program = program.run_decompositions(coreai_torch.get_decomp_table())
    return coreai_torch.TorchConverter().add_exported_program(program).to_coreai()


def measure(name: str, make: Any, published: bool, dynamic: bool = False) -> dict[str, Any]:
    """Return the figures of the call that `make` returns."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    function, args = make()
    module = function if isinstance(function, torch.nn.Module) else Call(function)
    start = time.process_time()
    program = convert(module.eval(), args, published, dynamic)
    figures: dict[str, Any] = {"convert": time.process_time() - start}
    before = peak_mb()
    with torch.no_grad():
        wanted = [w for w in pytree.tree_leaves(module(*args)) if isinstance(w, torch.Tensor)]
        figures["eager"] = best(lambda: module(*args))
    judge = partial(sort_error, wanted=wanted, x=args[0]) if name in UNSTABLE_SORTS else None
    figures |= asyncio.run(timed(program, args, judge or partial(error, wanted=wanted)))
    if published:
        libraries = ("coreai-torch", "coreai-core", "torch")
        figures["versions"] = {library: version(library) for library in libraries}
    return figures | {"grown": figures["peak"] - before}


def report(name: str, published: bool) -> str:
    """Return the figures of one call, or why there are none, as JSON."""
    library = define_nms() if name.startswith("nms") else None
    try:
        figures = measure(name, CASES[name], published)
    except Exception as problem:
        figures = {"problem": f"{type(problem).__name__}: {problem}".splitlines()[0][:200]}
    del library  # its ops are registered until here
    return "\n" + json.dumps(figures)


def warm_up() -> None:
    """Import the libraries and export once, so that a fork does not: that takes 3 s.

    No program is built: a context of the compiler has threads, which a fork loses.
    """
    import coreai.runtime  # noqa: F401

    import coreai_torch

    function = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU())
    with torch.no_grad():
        program = torch.export.export(function, (torch.randn(3, 2),))
        program.run_decompositions(coreai_torch.get_decomp_table())


def serve(published: bool) -> None:
    """Measure each call named on stdin in a fork, which has imported the libraries."""
    warm_up()
    for line in sys.stdin:
        process = os.fork()
        if not process:
            signal.alarm(SECONDS)
            print(report(line.strip(), published), flush=True)
            time.sleep(0.3)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            problem = f"over {SECONDS} s" if code == -signal.SIGALRM else f"exit code {code}"
            print("\n" + json.dumps({"problem": problem}), flush=True)


def main() -> None:
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    published = "--published" in sys.argv
    if names:
        print(report(names[0], published))
    else:
        serve(published)


if __name__ == "__main__":
    main()
