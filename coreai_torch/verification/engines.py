"""Which engine runs a program: the run time, or torch where the run time cannot be believed."""

from __future__ import annotations

from enum import StrEnum
from types import TracebackType
from typing import Any

import torch

from ..capture.validate import KERNELS, calls
from ..errors import NativeError
from ..interpreter import to_torch
from ..numerics.arrays import array
from ..torch_compat import OpOverload
from .isolation import Arrays, Isolated, Ports, ProgramFile, Saved
from .trials import Runner

# What multiplies matrices: in float16 the Linux run time adds up in 16 bits (4096 times 0.1 gives
# 256), which devices do not do, and takes 2,500 times as long as torch.
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "linear", "matmul"}
_PRODUCTS |= {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "einsum"}


class Engine(StrEnum):
    """How a program is run."""

    AUTO = "auto"
    RUNTIME = "runtime"
    TORCH = "torch"


def kernels(exported: torch.export.ExportedProgram) -> tuple[str, ...]:
    """The Metal kernels that a program calls, by name."""
    found = (n.target for n in calls(exported.graph_module))
    names = (
        t.overloadpacket.__name__
        for t in found
        if isinstance(t, OpOverload) and t.namespace == KERNELS
    )
    return tuple(dict.fromkeys(names))


def chosen(engine: Engine, exported: torch.export.ExportedProgram) -> tuple[Engine, str]:
    """The engine for a program, and the reason if it is not the run time."""
    if engine is not Engine.AUTO:
        return engine, ""
    if names := kernels(exported):
        return Engine.TORCH, (
            f"the program was run by torch, and the Metal kernels {', '.join(names)} from their "
            "source: the run time of this machine has no Metal"
        )
    if any(_half_product(node) for node in calls(exported.graph_module)):
        return Engine.TORCH, (
            "the program was run by torch: this machine's run time adds up float16 products in "
            "16 bits, which devices do not"
        )
    return Engine.RUNTIME, ""


def _half_product(node: torch.fx.Node) -> bool:
    target, val = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload):
        return False
    first = val[0] if isinstance(val, list | tuple) and val else val
    half = isinstance(first, torch.Tensor) and first.dtype == torch.float16
    return half and target.overloadpacket.__name__ in _PRODUCTS


def start(
    engine: Engine, source: ProgramFile, *, entrypoint: str, optimize: bool, timeout: float
) -> Runner:
    """Load the program in this engine."""
    if engine is Engine.TORCH:
        return RunByTorch(source, entrypoint=entrypoint, optimize=optimize, timeout=timeout)
    return Isolated(source, entrypoint=entrypoint, optimize=optimize, timeout=timeout)


class RunByTorch:
    """A function of a program that torch executes, op by op; optimized and saved in a child."""

    alive = True

    def __init__(
        self,
        source: ProgramFile,
        *,
        entrypoint: str = "main",
        optimize: bool = False,
        timeout: float,
    ) -> None:
        """Optimize if asked, save, and read the program back."""
        with Saved(source, optimize=optimize, timeout=timeout) as path:
            try:
                self._function = to_torch(path).function(entrypoint)
            except (KeyError, ValueError) as error:
                raise NativeError(f"torch cannot run the program: {error}") from error
        self.ports = Ports(
            list(self._function.inputs), list(self._function.outputs), list(self._function.states)
        )

    def call(self, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        """The outputs, and the states as the call left them."""
        held: dict[str, Any] = {name: value.copy() for name, value in states.items()}
        try:
            outputs = self._function(inputs, state=held)
        except Exception as error:
            raise NativeError(f"torch could not run the program: {error}") from error
        return {n: array(v) for n, v in outputs.items()}, {n: _plain(v) for n, v in held.items()}

    def close(self) -> None:
        """Nothing is held but memory."""

    def __enter__(self) -> RunByTorch:
        """The function itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held but memory."""


def _plain(value: Any) -> Any:
    return array(value) if isinstance(value, torch.Tensor) else value
