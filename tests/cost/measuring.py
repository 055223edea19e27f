"""Measure the cost of converting, loading and running a call."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import runtime
import torch
from torch.utils import _pytree as pytree

import coreai_torch
from coreai_torch.asset.mlir_module import mlir_module_of
from coreai_torch.capture.exporting import decompose, export
from coreai_torch.lowering.registry import key

from .family import FACTOR, Family

_RUNS = 3
_RESET = Path("/proc/self/clear_refs")
SEES_MEMORY = _RESET.exists()  # on Linux


@dataclass(frozen=True)
class Cost:
    """Figures of one call at one size."""

    ops: int
    bytes: int  # of the saved program with its constants
    memory: int  # bytes that loading and running add to the peak of the process
    convert: float  # processor seconds, as below
    load: float
    run: float
    lowered: frozenset[str] = field(repr=False)  # names of the ops in the exported program


@dataclass(frozen=True)
class Converted:
    """A program and what is known before it runs."""

    program: Any
    seconds: float
    lowered: frozenset[str]


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@cache
def _table() -> Any:
    return coreai_torch.get_decomp_table()


def short_name(target: Any) -> str:
    """Return the name of an op without its overload, and without the namespace aten."""
    return key(target).removeprefix("aten::").partition(".")[0]


def _names(exported: torch.export.ExportedProgram) -> Iterator[str]:
    for node in exported.graph.nodes:
        if node.op == "call_function":
            yield short_name(node.target)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect before a measurement: objects of earlier tests would make it longer."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def converted(function: Any, args: tuple[Any, ...], dynamic_axes: Any = None) -> Converted:
    """Convert a function or a module; `dynamic_axes` has a dictionary or None for each argument."""
    is_module = isinstance(function, torch.nn.Module)
    module = function if is_module else Function(function)
    shapes = dynamic_axes if is_module or dynamic_axes is None else (dynamic_axes,)
    with _no_garbage_collection():
        start = time.process_time()
        whole = export(module.eval(), args, {}, shapes)
        exported = decompose(whole, _table())
        program = coreai_torch.convert(exported, args, verify=False, target="linux")
        seconds = time.process_time() - start
    return Converted(program, seconds, frozenset([*_names(whole), *_names(exported)]))


def _op_count(operation: Any) -> int:
    return sum(
        1 + _op_count(inner.operation)
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    )


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) << 10


class Peak:
    """How far the peak memory of this process rises, in bytes; zero if the system cannot tell."""

    grown = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure how far the peak memory of this process rises above its memory at the start.

    Memory that was freed is given back to the system first: reusing it would not count.
    """
    peak = Peak()
    if not SEES_MEMORY:
        yield peak
        return
    ctypes.CDLL(None).malloc_trim(0)
    _RESET.write_text("5")  # resets the peak
    before = _status("VmRSS")
    yield peak
    peak.grown = max(_status("VmHWM") - before, 0)


async def _run(program: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, peak_memory() as peak:
        start = time.process_time()
        asset = program.save_asset(Path(folder) / "m.aimodel")
        size = (Path(folder) / "m.aimodel" / "main.mlirb").stat().st_size
        async with asset.executable() as model:
            function = model.load_function("main")
            load = time.process_time() - start
            leaves, names = pytree.tree_leaves(args), function.desc.input_names
            feeds = {n: runtime.ndarray(a) for n, a in zip(names, leaves, strict=True)}
            seconds = []
            for _ in range(_RUNS):
                start = time.process_time()
                await function(feeds)
                seconds.append(time.process_time() - start)
    return {"bytes": size, "load": load, "run": min(seconds), "memory": peak.grown}


def cost(made: Converted, args: tuple[Any, ...]) -> Cost:
    """Load and run a program."""
    figures = asyncio.run(_run(made.program, args))
    ops = _op_count(mlir_module_of(getattr(made.program, "program", made.program)).operation)
    return Cost(ops=ops, convert=made.seconds, lowered=made.lowered, **figures)


def costs(family: Family, dynamic: bool) -> tuple[Cost, Cost]:
    """Return the costs of a family at n and at 8 n; a dynamic program is converted once."""
    torch.manual_seed(0)
    (function, few), (larger, many) = family.call(family.n), family.call(family.n * FACTOR)
    if not dynamic:
        return cost(converted(function, few), few), cost(converted(larger, many), many)
    program = converted(function, few, tuple(map(_changed_axes, few, many)))
    return cost(program, few), cost(program, many)


def _changed_axes(few: torch.Tensor, many: torch.Tensor) -> dict[int, Any] | None:
    sizes = enumerate(zip(few.shape, many.shape, strict=True))
    return {axis: torch.export.Dim.DYNAMIC for axis, (a, b) in sizes if a != b} or None
