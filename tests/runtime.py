"""Runs a converted program on the real runtime, for tests."""

import asyncio
import atexit
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from coreai.authoring import AIProgram
from coreai.runtime import InferenceFunctionDescriptor, NDArray

# The runtime's own thread can abort the process if the interpreter ends right after a call.
atexit.register(time.sleep, 0.1)

Array = torch.Tensor | np.ndarray

# Programs hold no 64-bit numbers, so such feeds go in as their 32-bit counterparts.
_NARROW_TORCH = {torch.int64: torch.int32, torch.float64: torch.float32}
_NARROW_NUMPY = {"int64": np.int32, "uint64": np.uint32, "float64": np.float32}


class Names(NamedTuple):
    """The three name lists of a function, in the order of the runtime's descriptor."""

    inputs: list[str]
    outputs: list[str]
    states: list[str]


def run(
    program: AIProgram,
    feeds: Mapping[str, Array],
    state: dict[str, Array] | None = None,
    entrypoint: str = "main",
) -> dict[str, np.ndarray]:
    """The outputs by name; `state`, if given, holds the updated arrays afterwards."""
    return asyncio.run(_run(program, feeds, state if state is not None else {}, entrypoint))


def descriptor(program: AIProgram, entrypoint: str = "main") -> Names:
    """The names that reach the runtime."""
    return asyncio.run(_describe(program, entrypoint))


def function_names(program: AIProgram) -> list[str]:
    """The functions of the saved program, sorted."""
    return asyncio.run(_functions(program))


async def _run(
    program: AIProgram, feeds: Mapping[str, Array], state: dict[str, Array], entrypoint: str
) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as directory:
        asset = program.save_asset(Path(directory) / "program.aimodel")
        async with asset.executable() as model:
            function = model.load_function(entrypoint)
            states = {name: _ndarray(value) for name, value in state.items()}
            inputs = {name: _ndarray(value) for name, value in feeds.items()}
            outputs = await function(inputs, state=states)
            state.update({name: np.array(value.numpy()) for name, value in states.items()})
            return {name: np.array(value.numpy()) for name, value in outputs.items()}


async def _describe(program: AIProgram, entrypoint: str) -> Names:
    with tempfile.TemporaryDirectory() as directory:
        asset = program.save_asset(Path(directory) / "program.aimodel")
        async with asset.executable() as model:
            desc: InferenceFunctionDescriptor = model.load_function(entrypoint).desc
            return Names(list(desc.input_names), list(desc.output_names), list(desc.state_names))


async def _functions(program: AIProgram) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        asset = program.save_asset(Path(directory) / "program.aimodel")
        async with asset.executable() as model:
            return sorted(model.function_names)


def _ndarray(value: Array) -> NDArray:
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous()
        return NDArray(value.to(_NARROW_TORCH.get(value.dtype, value.dtype)))
    narrow = _NARROW_NUMPY.get(str(value.dtype), value.dtype)
    return NDArray(np.ascontiguousarray(value, dtype=narrow))
