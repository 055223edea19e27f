"""Run converted programs on the Core AI runtime."""

from __future__ import annotations

import asyncio
import atexit
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from coreai.runtime import NDArray

from coreai_torch.asset.worker import to_numpy
from coreai_torch.ir.types import narrow

# A runtime thread that needs the interpreter during its shutdown aborts the process.
atexit.register(time.sleep, 0.2)


@dataclass(frozen=True)
class Descriptor:
    input_names: list[str]
    output_names: list[str]
    state_names: list[str]


def ndarray(value: Any) -> NDArray:
    """Return a tensor as an NDArray, with 64-bit types narrowed as the converter does."""
    if isinstance(value, NDArray):
        return value
    if not isinstance(value, torch.Tensor):
        value = torch.as_tensor(value)
    value = value.detach().to(narrow(value.dtype)).contiguous()
    if value.dtype == torch.bfloat16:
        return NDArray(value.view(torch.uint16).numpy().view(ml_dtypes.bfloat16))
    return NDArray(value.numpy())


def tensor(array: NDArray) -> torch.Tensor:
    plain = to_numpy(array)
    if plain.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(plain.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(plain, copy=True))


async def _call(program, feeds, states, entrypoint, calls):
    with tempfile.TemporaryDirectory() as folder:
        asset = program.save_asset(Path(folder) / "m.aimodel")
        async with asset.executable() as model:
            function = model.load_function(entrypoint)
            state = {name: ndarray(value) for name, value in (states or {}).items()}
            for feed in feeds if calls else [feeds]:
                given = {name: ndarray(value) for name, value in feed.items()}
                result = await (function(given, state=state) if state else function(given))
            outputs = {n: tensor(result[n]) for n in function.desc.output_names}
            return outputs, {name: tensor(value) for name, value in state.items()}


def run_with_state(program, feeds, states, entrypoint="main"):
    """Return the outputs and the states after the call."""
    return asyncio.run(_call(program, feeds, states, entrypoint, calls=False))


def run_steps(program, feeds, states, entrypoint="main"):
    """Return the outputs of the last of several calls, and the states after it."""
    return asyncio.run(_call(program, feeds, states, entrypoint, calls=True))


def run(program, feeds, state=None, entrypoint="main") -> dict[str, torch.Tensor]:
    """Return the outputs of one call by name, in the order of the descriptor."""
    return run_with_state(program, feeds, state, entrypoint)[0]


async def _describe(program, entrypoint):
    with tempfile.TemporaryDirectory() as folder:
        asset = program.save_asset(Path(folder) / "m.aimodel")
        async with asset.executable() as model:
            desc = model.load_function(entrypoint).desc
            return Descriptor(
                list(desc.input_names), list(desc.output_names), list(desc.state_names)
            )


def descriptor(program, entrypoint="main") -> Descriptor:
    """Return the names of inputs, outputs and states of an entry point."""
    return asyncio.run(_describe(program, entrypoint))
