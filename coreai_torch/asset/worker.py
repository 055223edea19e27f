"""Load and run one program in a separate process; started by `verification.isolation`.

It is run as a script and imports nothing of the package, so that it starts without torch. What the
native code prints goes to a log, requests come in on standard input, replies leave on what was
standard output. A trace tells how far it came, for the case that it dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import coreai.authoring  # noqa: F401  must come before the bindings on 1.0.0b3
import numpy as np
from coreai._compiler import ir
from coreai._compiler.passmanager import PassManager
from coreai.authoring import AIModelAsset, AIProgram, Context
from coreai.runtime import AIModel, NDArray, Profiler
from coreai.runtime._ndarray import _RUNTIME_TO_NUMPY_DTYPE

_LENGTH = struct.Struct("<Q")


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
    """A trace file that survives a crash: the stage, and optionally each op."""

    def __init__(self, path: str, *, detailed: bool) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self.detailed = detailed

    def write(self, kind: str, what: str) -> None:
        os.write(self._file, f"{kind} {what}\n".encode())

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

    async def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Read, optimize if requested, save, compile, load; return the names of the ports."""
        asset = self._asset(request)
        await self._held.aclose()
        self._held = AsyncExitStack()
        self._trace.write("stage", "compiling for this machine")
        model = self._model = await self._loaded(asset)
        profiler = self._trace.profiler(_places(model)) if self._trace.detailed else None
        names = list(model.function_names)
        if request["entrypoint"] not in names:
            raise KeyError(f"no entrypoint {request['entrypoint']!r}; there are {names}")
        self._function = model.load_function(request["entrypoint"], profiler=profiler)
        desc = self._function.desc
        return {
            "inputs": list(desc.input_names),
            "outputs": list(desc.output_names),
            "states": list(desc.state_names),
        }

    async def save(self, request: dict[str, Any]) -> dict[str, Any]:
        """Read, optimize if requested, save; return the path of the asset."""
        return {"path": str(self._asset(request).path)}

    async def _loaded(self, asset: Any) -> Any:
        """Return the loaded model; with locations of its ops if they are traced."""
        if not (self._trace.detailed and hasattr(asset, "_write_odix")):  # 1.0.0b2 has it not
            return await self._held.enter_async_context(asset.executable())
        folder = tempfile.mkdtemp(suffix=".aimodelx")
        asset._write_odix(Path(folder), enable_debug_info=True)
        self._trace.write("stage", "loading")
        return await AIModel.load(folder)

    def _asset(self, request: dict[str, Any]) -> Any:
        if request["asset"] and not request["optimize"]:
            return AIModelAsset.load(request["asset"])
        self._trace.write("stage", "reading")
        context = Context()._mlir_context
        if self._trace.detailed:
            from coreai._compiler._mlir_libs._coreaiIR._bindings.mlir.dialects import coreai

            coreai.register_should_const_folding_hook(callable=self._trace.folding, context=context)
        with context:
            if request["asset"]:
                program = AIModelAsset.load(request["asset"]).program
            else:
                module = ir.Module.parse(Path(request["bytecode"]).read_bytes())
                program = AIProgram._from_mlir_module(module)
            if request["optimize"]:
                self._trace.write("stage", "optimizing")
                pipeline = str(PassManager.parse(request["rewrite"]))
                for unsound in request["without"]:
                    pipeline = pipeline.replace(unsound, "")
                PassManager.parse(pipeline).run(_module(program).operation)
        self._trace.write("stage", "saving")
        folder = tempfile.mkdtemp()
        return program.save_asset(Path(folder) / "program.aimodel")

    async def describe(self, request: dict[str, Any]) -> dict[str, Any]:
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

    async def keep(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store the content of a state under a key, and forget others."""
        for key in request["forget"]:
            self._kept.pop(key, None)
        self._kept[request["key"]] = NDArray(request["array"])
        return {}

    async def fetch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the content of a stored state."""
        return {"array": to_numpy(self._kept[request["key"]])}

    async def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call the function once; return outputs and updated states.

        A state is an array, or the key of a stored one, which is updated but not returned.
        """
        self._trace.write("stage", "running")
        given = {name: NDArray(array) for name, array in request["inputs"].items()}
        sent = {n: x for n, x in request["states"].items() if not isinstance(x, int)}
        states = {name: NDArray(array) for name, array in sent.items()}
        kept = {n: self._kept[key] for n, key in request["states"].items() if n not in sent}
        results = await self._function(given, state={**states, **kept})
        return {
            "outputs": {n: to_numpy(results[n]) for n in self._function.desc.output_names},
            "states": {name: to_numpy(array) for name, array in states.items()},
        }

    async def timed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call the function several times with the same inputs; return the times."""
        self._trace.write("stage", "running")
        given = {name: NDArray(array) for name, array in request["inputs"].items()}
        states = {name: NDArray(array) for name, array in request["states"].items()}
        seconds = []
        for number in range(request["warmup"] + request["runs"]):
            began = time.perf_counter()
            await self._function(given, state=states)
            if number >= request["warmup"]:
                seconds.append(time.perf_counter() - began)
        return {"seconds": seconds}


def _module(program: Any) -> Any:
    return (
        program._mlir_module if hasattr(program, "_mlir_module") else program._module._mlir_module
    )


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


def _end_with_parent(folder: str) -> None:
    """Start a process that kills this one and removes its folder if the parent ends first.

    A native call that does not return reads no input and may hold the interpreter lock, so a
    thread cannot do this.
    """
    worker = os.getpid()
    if os.fork():
        return
    os.closerange(1, 16)  # the parent recognizes a crash by the end of the pipe
    until_closed = select.poll()
    until_closed.register(0, 0)  # no event but the end of the pipe, which the parent writes to
    until_closed.poll()
    if os.getppid() == worker:
        os.kill(worker, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def main(folder: str, detailed: bool) -> None:
    """Serve requests until the other side closes."""
    _end_with_parent(folder)
    replies = os.fdopen(os.dup(1), "wb")
    log = os.open(os.path.join(folder, "log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    tempfile.tempdir = folder  # which the parent removes, however this process ends
    session = Session(Trace(os.path.join(folder, "trace"), detailed=detailed))
    loop = asyncio.new_event_loop()
    while header := sys.stdin.buffer.read(_LENGTH.size):
        (size,) = _LENGTH.unpack(header)
        kind, request = pickle.loads(sys.stdin.buffer.read(size))
        try:
            reply = ("ok", loop.run_until_complete(getattr(session, kind)(request)))
        except Exception as error:
            reply = ("error", "".join(traceback.format_exception_only(error)).strip())
        data = pickle.dumps(reply, protocol=5)
        replies.write(_LENGTH.pack(len(data)))
        replies.write(data)
        replies.flush()
    shutil.rmtree(folder, ignore_errors=True)  # the parent may have been killed
    os._exit(0)  # a thread of the run time may abort an interpreter that shuts down


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "detailed")
