"""Load and run one program in a separate process; started by `verification.isolation`.

It starts without torch. It tells how far it came, for the case that it dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import coreai.authoring  # noqa: F401  must come before the bindings on 1.0.0b3
import numpy as np
from coreai._compiler import ir
from coreai.authoring import AIModelAsset, AIProgram, Context
from coreai.runtime import AIModel, NDArray, Profiler, _AIModelAsset
from coreai.runtime._ndarray import _RUNTIME_TO_NUMPY_DTYPE

from ..sandbox import processes
from ..sandbox.channel import Channel
from ..stopwatch import call_seconds
from .mlir_module import optimize
from .states import stored_module

_LONGEST = 2000  # characters of a trace; a pipe takes 4096 bytes of several threads in one piece


def to_numpy(array: NDArray) -> np.ndarray[Any, Any]:
    """Return an array of the runtime as a NumPy array.

    `NDArray.numpy` of coreai-core 1.0.0b3 fails for bfloat16 and float8 with NumPy 2.5, whose
    from_dlpack raises BufferError where earlier versions raised RuntimeError.
    """
    try:
        numbers: np.ndarray[Any, Any] = array.numpy()
    except BufferError:
        buffer = memoryview(array._tensor)
        raw = buffer if buffer.c_contiguous else buffer.tobytes()
        dtype = _RUNTIME_TO_NUMPY_DTYPE[array._tensor.dtype]
        return np.frombuffer(raw, dtype=np.dtype(dtype)).reshape(array._tensor.shape)
    return numbers


class Trace:
    """Tells the parent the stage, and optionally each op."""

    def __init__(self, channel: Channel, *, detailed: bool) -> None:
        self._channel = channel
        self.detailed = detailed

    def write(self, kind: str, what: str) -> None:
        self._channel.send((kind, what[:_LONGEST]))

    def folding(self, op: Any) -> bool:
        """Record an op; the compiler calls this before it folds an op."""
        self.write("op", f"{op.name} {op.location}")
        return True

    def profiler(self, places: dict[int, str]) -> Profiler:
        """Record each op of a call before it runs, with its origin."""

        def begin(event: Any) -> int:
            name = event.event_id.removeprefix("call.")
            if name.startswith("coreai"):  # the others allocate
                self.write("op", f"{name} {places.get(event.compile_ids.id, '')}".strip())
            return 0

        return Profiler(lambda event: None, begin, lambda event, interval: None)


class Session:
    """One loaded function."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._function: Any = None
        self._model: Any = None  # a function returns garbage once its model is collected
        self._held = AsyncExitStack()
        self._kept: dict[int, NDArray] = {}  # states that stay here between calls

    async def load(self, entrypoint: str, **source: Any) -> dict[str, Any]:
        """Read, optimize if requested, save, compile, load; return the names of the ports."""
        asset = self._asset(**source, write=_written)
        await self._held.aclose()
        self._held = AsyncExitStack()
        self._trace.write("stage", "compiling for this machine")
        model = self._model = await self._loaded(asset)
        profiler = self._trace.profiler(_places(model)) if self._trace.detailed else None
        names = list(model.function_names)
        if entrypoint not in names:
            raise KeyError(f"no entrypoint {entrypoint!r}; there are {names}")
        self._function = model.load_function(entrypoint, profiler=profiler)
        desc = self._function.desc
        return {
            "inputs": list(desc.input_names),
            "outputs": list(desc.output_names),
            "states": list(desc.state_names),
        }

    async def save(self, **source: Any) -> str:
        """Read, optimize if requested, save; return the path of the asset."""
        return str(self._asset(**source).path)

    async def _loaded(self, asset: Any) -> Any:
        """Return the loaded model; with locations of its ops if they are traced."""
        if not (self._trace.detailed and hasattr(asset, "_write_odix")):  # 1.0.0b2 has it not
            return await self._held.enter_async_context(asset.executable())
        folder = tempfile.mkdtemp(suffix=".aimodelx")
        asset._write_odix(Path(folder), enable_debug_info=True)
        self._trace.write("stage", "loading")
        return await AIModel.load(folder)

    def _asset(
        self,
        bytecode: Path | None,
        asset: Path | None,
        optimized: bool,
        write: Callable[[Any, Path], Any] = AIProgram.save_asset,
    ) -> Any:
        if asset is not None and not optimized:
            return AIModelAsset.load(asset)
        self._trace.write("stage", "reading")
        context = Context()._mlir_context
        if self._trace.detailed:
            from coreai._compiler._mlir_libs._coreaiIR._bindings.mlir.dialects import coreai

            coreai.register_should_const_folding_hook(callable=self._trace.folding, context=context)
        with context:
            if bytecode is None:
                program = AIModelAsset.load(asset).program
            else:
                program = AIProgram._from_mlir_module(ir.Module.parse(bytecode.read_bytes()))
            if optimized:
                self._trace.write("stage", "optimizing")
                optimize(stored_module(program))
        self._trace.write("stage", "saving")
        folder = tempfile.mkdtemp()
        return write(program, Path(folder) / "program.aimodel")

    async def describe(self) -> dict[str, Any]:
        """Return the functions of the program, and the shapes and dtypes of the loaded one."""
        desc = self._function.desc
        ports = {
            kind: {
                name: (tuple(map(int, port.shape)), np.dtype(port.dtype))
                for name in getattr(desc, f"{kind}_names")
                for port in [getattr(desc, f"{kind}_descriptor")(name)]
            }
            for kind in ("input", "output", "state")
        }
        return {"functions": list(self._model.function_names), "ports": ports}

    async def keep(self, key: int, array: Any, forget: list[int]) -> None:
        """Store the content of a state under a key, and forget others."""
        for other in forget:
            self._kept.pop(other, None)
        self._kept[key] = NDArray(array)

    async def fetch(self, key: int) -> Any:
        """Return the content of a stored state."""
        return to_numpy(self._kept[key])

    async def call(self, inputs: dict[str, Any], states: dict[str, Any]) -> dict[str, Any]:
        """Call the function once; return outputs and updated states.

        A state is an array, or the key of a stored one, which is updated but not returned.
        """
        given, sent = self._arrays(inputs, {n: x for n, x in states.items() if _is_array(x)})
        kept = {name: self._kept[key] for name, key in states.items() if name not in sent}
        results = await self._function(given, state={**sent, **kept})
        return {
            "outputs": {n: to_numpy(results[n]) for n in self._function.desc.output_names},
            "states": {name: to_numpy(array) for name, array in sent.items()},
        }

    async def timed(
        self, inputs: dict[str, Any], states: dict[str, Any], warmup: int, runs: int
    ) -> list[float]:
        """Call the function several times with the same inputs; return the times."""
        given, sent = self._arrays(inputs, states)
        return await call_seconds(self._function, given, sent, warmup=warmup, runs=runs)

    def _arrays(self, *groups: dict[str, Any]) -> list[dict[str, NDArray]]:
        """Return the arrays of a call for the runtime."""
        self._trace.write("stage", "running")
        return [{name: NDArray(x) for name, x in group.items()} for group in groups]


def _is_array(state: Any) -> bool:
    return not isinstance(state, int)


def _written(program: Any, path: Path) -> Any:
    """Write an asset that only this process reads.

    `save_asset` reads it again to store its hash: 0.2 of 2 s for 264 MB of weights.
    """
    if not hasattr(AIModelAsset, "_wrap"):
        return program.save_asset(path)
    path.mkdir()
    asset = _AIModelAsset._create(path=str(path), metadata=None)
    program._save_bytecode(asset._program_bytecode_path)
    return AIModelAsset._wrap(asset)


def _places(model: Any) -> dict[int, str]:
    """Return the debug information of each executed op by its number."""
    known: dict[int, str] = {}
    for info in json.loads(model._debug_infos or b"[]"):
        for op in info.get("operations", ()):
            said = {d["key"]: d["value"].get("string", {}).get("_0") for d in op["metadatas"]}
            parts = [f"{k}={said[k]}" for k in ("fx_node", "target", "module") if said.get(k)]
            lines = [f'File "{x["fileName"]}", line {x["line"]}' for x in op["sourceLocations"]]
            known[op["odixId"]] = ", ".join([*parts, *lines[-1:]])
    return known


def serve(channel: Channel, folder: str, detailed: bool) -> None:
    """Answer requests until the parent closes the channel; `folder` takes temporary files."""
    processes.end_with_parent(channel.requests, folder)
    tempfile.tempdir = folder  # which the parent removes, however this process ends
    session = Session(Trace(channel, detailed=detailed))
    loop = asyncio.new_event_loop()
    for kind, request in channel:
        try:
            reply = ("ok", loop.run_until_complete(getattr(session, kind)(**request)))
        except Exception as error:
            reply = ("error", "".join(traceback.format_exception_only(error)).strip())
        channel.send(reply)
    shutil.rmtree(folder, ignore_errors=True)  # the parent may have been killed
    os._exit(0)  # a thread of the runtime may abort an interpreter that shuts down
