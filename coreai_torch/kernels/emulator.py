"""Runs a compiled kernel in a process of its own and reads back its results."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..errors import KernelError
from ..ir.types import narrow
from . import compiler
from .reports import Finding, read
from .source import Source, prepare

_PAGE = 4096
_GAP = 256  # bytes between tensors: an access that lands there went astray
_CHUNK = 1 << 20
_FINE, _FOUND = 0, 3
_CARRIED = {bool: torch.bool, int: torch.int32, float: torch.float32}
Constants = Mapping[int | str, bool | int | float]


@dataclass(frozen=True)
class Launch:
    """How much of a kernel to run, and how."""

    grid: Sequence[int]
    group: Sequence[int]
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[torch.dtype]
    constants: Constants
    timeout: float


@dataclass(frozen=True)
class Outcome:
    """What a run left behind; no results if it had to be stopped."""

    results: list[torch.Tensor]
    findings: list[Finding]


def carried(argument: object) -> torch.Tensor:
    """An argument as the kernel gets it: narrowed to 32 bits, row by row."""
    if isinstance(argument, torch.Tensor):
        plain = argument.detach().cpu()
        return plain.to(narrow(plain.dtype)).contiguous()
    return torch.tensor(argument, dtype=_CARRIED[type(argument)])


def run(
    source: Source, inputs: Sequence[torch.Tensor], launch: Launch, *, checked: bool
) -> Outcome:
    """Compile if need be, run, and read the results and what was found on the way."""
    program = _built(source, launch.constants, checked)
    shapes = [*(t.shape for t in inputs), *launch.shapes]
    laid = _Layout(shapes, [*(t.dtype for t in inputs), *launch.dtypes], len(inputs))
    with tempfile.TemporaryDirectory(dir=_folder(laid.bytes)) as folder:
        data = Path(folder) / "tensors"
        laid.write(data, inputs)
        arguments = laid.arguments(data, launch, checked)
        ran = _process(source.kernel, program, arguments, launch.timeout)
        findings = read(ran, source, laid.shapes, len(inputs), program)
        results = laid.results(data) if ran.returncode == _FINE else []
    return Outcome(results, findings)


def _built(source: Source, constants: Constants, checked: bool) -> Path:
    try:
        return compiler.build(source, prepare(source, constants), checked=checked)
    except compiler.CompileError as error:
        if "?:" not in str(error) or "bfloat" not in source.text:
            raise
    # Before g++ 13 bfloat is a class, and `c ? x[i] : 0` has no type; Metal has one for it.
    met = prepare(source, constants, meet_in_float=True)
    return compiler.build(source, met, checked=checked)


def _process(
    name: str, program: Path, arguments: Sequence[str], timeout: float
) -> subprocess.CompletedProcess[str]:
    try:
        ran = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as cause:
        raise KernelError(
            f"Metal kernel {name!r} did not end within {timeout:g} seconds\n"
            "  try   a smaller grid, a larger timeout, or looking for a loop that never ends"
        ) from cause
    if ran.returncode not in (_FINE, _FOUND):
        died = (
            f"signal {signal.Signals(-ran.returncode).name}" if ran.returncode < 0 else "an error"
        )
        raise KernelError(f"Metal kernel {name!r} died of {died}\n{ran.stdout}{ran.stderr}")
    return ran


def _folder(size: int) -> str | None:
    """Shared memory if there is enough of it: containers often have 64 MB."""
    if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 * size:
        return "/dev/shm"
    return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Layout:
    """Where the tensors lie in the file that both processes see: inputs first, page by page."""

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[torch.dtype],
        inputs: int,
    ) -> None:
        self.shapes = [tuple(int(s) for s in shape) for shape in shapes]
        self._dtypes, self._inputs = dtypes, inputs
        self._offsets: list[int] = []
        place = _GAP
        for i, (shape, dtype) in enumerate(zip(self.shapes, dtypes, strict=True)):
            if i == inputs:
                place = self._input_bytes = _up(place, _PAGE)
                place += _GAP
            self._offsets.append(place)
            size = math.prod(shape) * narrow(dtype).itemsize
            place = _up(place + size + _GAP, _GAP)
        self.bytes = _up(place, _PAGE)

    def write(self, path: Path, inputs: Sequence[torch.Tensor]) -> None:
        """Make the file; results begin as bits that are no number."""
        with path.open("wb") as file:
            for tensor, offset in zip(inputs, self._offsets, strict=False):
                file.seek(offset)
                file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
            file.seek(self._input_bytes)
            # Written out, not left as holes: a full disk is then an error here and no crash there.
            for start in range(self._input_bytes, self.bytes, _CHUNK):
                file.write(b"\xff" * min(_CHUNK, self.bytes - start))

    def results(self, path: Path) -> list[torch.Tensor]:
        """The results, in the dtypes that they are asked for."""
        memory = np.fromfile(path, np.uint8)
        found = []
        for shape, offset, dtype in list(self._places())[self._inputs :]:
            size = math.prod(shape) * narrow(dtype).itemsize
            plain = torch.from_numpy(memory[offset : offset + size])
            plain = plain.ne(0) if dtype == torch.bool else plain.view(narrow(dtype))
            found.append(plain.reshape(shape).to(dtype, copy=True))
        return found

    def _places(self) -> Iterator[tuple[tuple[int, ...], int, torch.dtype]]:
        return zip(self.shapes, self._offsets, self._dtypes, strict=True)

    def arguments(self, path: Path, launch: Launch, checked: bool) -> list[str]:
        """What the program needs to know, as it reads it."""
        workers = 1 if checked else _cores()
        numbers = [self._input_bytes, self.bytes, workers, *launch.grid, *launch.group]
        for i, (shape, offset, dtype) in enumerate(self._places()):
            # The first index of a Metal tensor runs along the axis that lies closest: torch's last.
            item = narrow(dtype).itemsize
            numbers += [offset, i >= self._inputs, item, len(shape), *reversed(shape)]
        return [str(path), *(str(int(n)) for n in numbers)]


def _up(place: int, step: int) -> int:
    return -(-place // step) * step
