"""Profile an asset in a separate process, so that a crash of the runtime does not end this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..debugging.benchmarker import BenchmarkResult
    from ..debugging.trace import Trace

_Result = TypeVar("_Result")


def profiled(asset: Path, function: str, runs: int, size: int) -> BenchmarkResult:
    """Return the times of calls, modules and ops; inputs are random."""
    return _in_child(_benchmarked, asset, function, runs, size)


def traced(asset: Path, function: str, runs: int, size: int) -> Trace:
    """Return the steps of calls; inputs are random."""
    return _in_child(_traced, asset, function, runs, size)


def _in_child(run: Callable[..., _Result], asset: Path, *arguments: Any) -> _Result:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    from ..errors import NativeError

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_silent) as pool:
        try:
            return pool.submit(run, asset, *arguments).result()
        except BrokenProcessPool:
            raise NativeError(
                f"the native code crashed while it profiled {asset}\n"
                "  try   run coreai-torch bench, which names the op, or omit --profile and --trace"
            ) from None


def _silent() -> None:
    """Silence the runtime, which prints to standard output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _benchmarked(asset: Path, function: str, runs: int, size: int) -> BenchmarkResult:
    import asyncio

    from ..debugging.benchmarker import benchmark_coreai_program

    given = _arguments(asset, function, runs, size)
    return asyncio.run(benchmark_coreai_program(**given))


def _traced(asset: Path, function: str, runs: int, size: int) -> Trace:
    import asyncio

    from ..debugging.trace import trace_coreai_program

    return asyncio.run(trace_coreai_program(**_arguments(asset, function, runs, size)))


def _arguments(asset: Path, function: str, runs: int, size: int) -> dict[str, Any]:
    from ..interpreter import to_torch
    from ..verification.timing import drawn

    signature = to_torch(asset).functions[function]
    return {
        "coreai_program": asset,
        "inputs": {name: drawn(type_, size) for name, type_ in signature.inputs.items()},
        "states": {name: drawn(type_, size) * 0 for name, type_ in signature.states.items()},
        "num_runs": runs,
        "function_name": function,
    }
