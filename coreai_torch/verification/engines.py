"""Choose what runs a program: the runtime, or torch where it differs from devices."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from coreai.authoring import AIProgram

from ..capture.validate import KERNELS, calls
from ..errors import NativeError, VerificationInputError
from ..interpreter import to_torch
from ..numerics.arrays import array
from ..torch_compat import OpOverload
from .isolation import Arrays, Isolated, Ports, ProgramFile, saved
from .runner import Engine, Runner

__all__ = [
    "Engine",
    "RunByTorch",
    "by_predicted_time",
    "check_device",
    "chosen",
    "kernels",
    "start",
]

# The Linux runtime accumulates these in 16 bits (4096 terms of 0.1 sum to 256), unlike devices:
# matrix products and transposed convolutions of float16, and scans of float16 and bfloat16. Sums,
# means, pools and convolutions it accumulates in 32 bits. Products also take 2,500 times as long
# as in torch.
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "linear", "matmul"}
_PRODUCTS |= {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "einsum"}
_PRODUCTS |= {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
_PRODUCTS |= {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"}
_PRODUCTS |= {"upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"}
_PRODUCTS |= {"adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}
_SCANS = {"cumsum", "cumprod"}
_TRANSPOSED = 6  # of the arguments of a convolution


def kernels(exported: torch.export.ExportedProgram) -> tuple[str, ...]:
    """Return the names of the Metal kernels that a program calls."""
    found = (n.target for n in calls(exported.graph_module))
    names = (
        t.overloadpacket.__name__
        for t in found
        if isinstance(t, OpOverload) and t.namespace == KERNELS
    )
    return tuple(dict.fromkeys(names))


def chosen(
    engine: Engine, exported: torch.export.ExportedProgram, device: str = "cpu"
) -> tuple[Engine, str]:
    """Return the engine for a program, and the reason if it is not the runtime."""
    if device != "cpu":
        return Engine.TORCH, (
            f"torch ran the program on {device}; the runtime of this machine did not run"
        )
    if engine is not Engine.AUTO:
        return engine, ""
    if names := kernels(exported):
        return Engine.TORCH, (
            f"torch ran the program, and the Metal kernels {', '.join(names)} from their "
            "source: the runtime of this machine has no Metal"
        )
    if any(_accumulates_in_half(node) for node in calls(exported.graph_module)):
        return Engine.TORCH, (
            "torch ran the program: this machine's runtime accumulates float16 products and "
            "scans in 16 bits, unlike devices"
        )
    return Engine.RUNTIME, ""


def by_predicted_time(slow: Mapping[str, float], limit: float) -> tuple[Engine, str]:
    """Return the engine for a program with these slow ops, and the reason if it is not the runtime.

    Torch runs it if a call before and one after `optimize()` would take longer than all generated
    inputs may.
    """
    total = sum(slow.values())
    if 2 * total <= limit or sys.platform == "darwin":  # the runtime of macOS compiles
        return Engine.RUNTIME, ""
    ops = ", ".join(f"{name} {seconds:.2g} s" for name, seconds in [*slow.items()][:3])
    return Engine.TORCH, (
        f"torch ran the program: a call of this machine's runtime would take at least {total:.2g} s"
        f" ({ops}), unlike on devices; engine='runtime' waits for it"
    )


def _accumulates_in_half(node: torch.fx.Node) -> bool:
    """Return whether the runtime accumulates a node in 16 bits."""
    target, val = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload):
        return False
    first = val[0] if isinstance(val, list | tuple) and val else val
    dtype = first.dtype if isinstance(first, torch.Tensor) else None
    name = target.overloadpacket.__name__
    if name == "convolution":
        return dtype == torch.float16 and bool(node.args[_TRANSPOSED])
    if name in _SCANS:
        return dtype in (torch.float16, torch.bfloat16)
    return dtype == torch.float16 and name in _PRODUCTS


def check_device(device: str, engine: Engine) -> None:
    """Raise unless torch can run a program on the device."""
    try:
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError) as error:  # torch asserts that CUDA was compiled in
        (reason, *_) = str(error).splitlines() or [type(error).__name__]
        raise VerificationInputError(
            f"torch cannot use the device {device!r}: {reason}\n"
            "  try   pass device='cpu', or install a torch that supports the device"
        ) from error
    if device != "cpu" and engine is Engine.RUNTIME:
        raise VerificationInputError(
            f"the runtime cannot run on {device!r}\n"
            "  try   pass engine='torch', or leave out device"
        )


def start(
    engine: Engine,
    source: ProgramFile,
    *,
    entrypoint: str,
    optimize: bool,
    timeout: float,
    device: str = "cpu",
) -> Runner:
    """Load the program in the engine; only torch uses another device than the CPU."""
    if engine is Engine.TORCH:
        return RunByTorch(
            source, entrypoint=entrypoint, optimize=optimize, timeout=timeout, device=device
        )
    return Isolated(source, entrypoint=entrypoint, optimize=optimize, timeout=timeout)


class RunByTorch(AbstractContextManager["RunByTorch"]):
    """A function that torch runs op by op; a child process optimizes and saves the program."""

    alive = True

    def __init__(
        self,
        source: ProgramFile,
        *,
        entrypoint: str = "main",
        optimize: bool = False,
        timeout: float,
        device: str = "cpu",
    ) -> None:
        """Optimize if requested, save, and read the program back."""
        with _asset(source, optimize=optimize, timeout=timeout) as path:
            self._read(path, entrypoint, device)

    def _read(self, program: Path | AIProgram, entrypoint: str, device: str) -> None:
        try:
            self._function = to_torch(program).to(device).function(entrypoint)
        except (KeyError, ValueError) as error:
            raise NativeError(f"torch cannot run the program: {error}") from error
        self.ports = Ports(
            list(self._function.inputs), list(self._function.outputs), list(self._function.states)
        )

    @classmethod
    def of_program(cls, program: AIProgram, entrypoint: str, device: str = "cpu") -> RunByTorch:
        """Run a program that is in memory, without a copy on disk."""
        self = cls.__new__(cls)
        self._read(program, entrypoint, device)
        return self

    def call(self, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs, and the states after the call."""
        after: dict[str, Any] = {name: value.copy() for name, value in states.items()}
        try:
            outputs = self._function(inputs, state=after)
        except Exception as error:
            raise NativeError(f"torch could not run the program: {error}") from error
        return {n: _array(v) for n, v in outputs.items()}, {n: _array(v) for n, v in after.items()}

    def close(self) -> None:
        """Do nothing: there is no process to end."""

    def __exit__(self, *ended: object) -> None:
        """Do nothing: there is no process to end."""


def _asset(source: ProgramFile, *, optimize: bool, timeout: float) -> AbstractContextManager[Path]:
    """Return the asset that torch reads: a given one without a copy, unless it is optimized."""
    if source.asset is not None and not optimize:
        return nullcontext(source.asset)
    return saved(source, optimize=optimize, timeout=timeout)


def _array(value: Any) -> Any:
    return array(value.cpu()) if isinstance(value, torch.Tensor) else value
