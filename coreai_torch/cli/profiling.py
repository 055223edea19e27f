"""Profile an asset in a separate process, so that a crash of the runtime does not end this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..errors import NativeError
from ..sandbox.call import call
from ..sandbox.child import Ended

if TYPE_CHECKING:
    from ..debugging.benchmarker import BenchmarkResult
    from ..debugging.trace import Trace

Sizes: TypeAlias = "Mapping[str, int] | int | None"  # by name, or of all dynamic sizes
_Result = TypeVar("_Result")


def profiled(asset: Path, function: str, runs: int, size: Sizes) -> BenchmarkResult:
    """Return the times of calls, modules and ops; inputs are random."""
    return _in_child(_benchmarked, asset, function, runs, size)


def traced(asset: Path, function: str, runs: int, size: Sizes) -> Trace:
    """Return the steps of calls; inputs are random."""
    return _in_child(_traced, asset, function, runs, size)


def _in_child(run: Callable[..., _Result], asset: Path, *arguments: Any) -> _Result:
    try:
        return call(run, asset, *arguments)
    except Ended:
        raise NativeError(
            f"the native code crashed while it profiled {asset}\n"
            "  try   run coreai-torch bench, which names the op, or omit --profile and --trace"
        ) from None


def _benchmarked(asset: Path, function: str, runs: int, size: Sizes) -> BenchmarkResult:
    import asyncio

    from ..debugging.benchmarker import benchmark_coreai_program

    given = _arguments(asset, function, runs, size)
    return asyncio.run(benchmark_coreai_program(**given))


def _traced(asset: Path, function: str, runs: int, size: Sizes) -> Trace:
    import asyncio

    from ..debugging.trace import trace_coreai_program

    return asyncio.run(trace_coreai_program(**_arguments(asset, function, runs, size)))


def _arguments(asset: Path, function: str, runs: int, size: Sizes) -> dict[str, Any]:
    from ..asset.port_sizes import PortSizes
    from ..interpreter import to_torch
    from ..verification.timing import drawn

    signature, sizes = to_torch(asset).functions[function], PortSizes.of(asset, function, size)
    return {
        "coreai_program": asset,
        "inputs": {n: drawn(t, sizes.shape(n, t)) for n, t in signature.inputs.items()},
        "states": {n: drawn(t, sizes.shape(n, t)) * 0 for n, t in signature.states.items()},
        "num_runs": runs,
        "function_name": function,
    }
