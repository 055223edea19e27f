"""Run a compiled kernel in a child process and read its results."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..errors import KernelError
from ..ir.types import narrow
from ..sandbox.child import how_ended
from . import compiler
from .reports import Finding, read
from .source import Source, prepare

_PAGE = 4096
_GAP = 256  # bytes between tensors, to detect accesses out of bounds
_CHUNK = 1 << 20
_OK, _HAS_FINDINGS = 0, 3  # exit codes
_SCALAR_DTYPES = {bool: torch.bool, int: torch.int32, float: torch.float32}
Constants = Mapping[int | str, bool | int | float]


@dataclass(frozen=True)
class Launch:
    """Grid, results and options of one run."""

    grid: Sequence[int]
    group: Sequence[int]
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[torch.dtype]
    constants: Constants
    timeout: float


@dataclass(frozen=True)
class Outcome:
    """Results and findings of a run; no results if it was aborted."""

    results: list[torch.Tensor]
    findings: list[Finding]


def to_operand(argument: object) -> torch.Tensor:
    """Return an argument as the kernel reads it: contiguous and narrowed to 32 bits."""
    if isinstance(argument, torch.Tensor):
        tensor = argument.detach().cpu()
        return tensor.to(narrow(tensor.dtype)).contiguous()
    return torch.tensor(argument, dtype=_SCALAR_DTYPES[type(argument)])


def run(
    source: Source, inputs: Sequence[torch.Tensor], launch: Launch, *, checked: bool
) -> Outcome:
    """Compile if needed, run, and return the results and the findings."""
    program = _build(source, launch.constants, checked)
    shapes = [*(t.shape for t in inputs), *launch.shapes]
    layout = _Layout(shapes, [*(t.dtype for t in inputs), *launch.dtypes], len(inputs))
    with tempfile.TemporaryDirectory(dir=_folder(layout.bytes)) as folder:
        data = Path(folder) / "tensors"
        layout.write(data, inputs)
        arguments = layout.arguments(data, launch, checked)
        ran = _process(source.kernel, program, arguments, launch.timeout)
        findings = read(ran, source, layout.shapes, len(inputs), program)
        results = layout.results(data) if ran.returncode == _OK else []
    return Outcome(results, findings)


def _build(source: Source, constants: Constants, checked: bool) -> Path:
    try:
        return compiler.build(source, prepare(source, constants), checked=checked)
    except compiler.CompileError as error:
        if "?:" not in str(error) or "bfloat" not in source.text:
            raise
    # Before g++ 13 bfloat is a class here, and `c ? x[i] : 0` has no common type as in Metal.
    text = prepare(source, constants, branches_as_float=True)
    return compiler.build(source, text, checked=checked)


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
            "  try   check for an endless loop, or pass a smaller grid or a larger timeout"
        ) from cause
    if ran.returncode not in (_OK, _HAS_FINDINGS):
        end = how_ended(ran.returncode)
        raise KernelError(f"Metal kernel {name!r} {end}\n{ran.stdout}{ran.stderr}")
    return ran


def _folder(size: int) -> str | None:
    """Return /dev/shm if it is large enough (containers often have 64 MB), else None."""
    if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 * size:
        return "/dev/shm"
    return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Layout:
    """Offsets of the tensors in the file that both processes share: inputs first, then results."""

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
        """Write the file; results are filled with 0xff bytes, which are NaN."""
        with path.open("wb") as file:
            for tensor, offset in zip(inputs, self._offsets, strict=False):
                file.seek(offset)
                file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
            file.seek(self._input_bytes)
            # Write all bytes instead of a sparse file: a full disk then raises here and does not
            # crash the child process.
            for start in range(self._input_bytes, self.bytes, _CHUNK):
                file.write(b"\xff" * min(_CHUNK, self.bytes - start))

    def results(self, path: Path) -> list[torch.Tensor]:
        """Read the results in the requested dtypes."""
        memory = np.fromfile(path, np.uint8)
        found = []
        for shape, offset, dtype in list(self._places())[self._inputs :]:
            size = math.prod(shape) * narrow(dtype).itemsize
            flat = torch.from_numpy(memory[offset : offset + size])
            flat = flat.ne(0) if dtype == torch.bool else flat.view(narrow(dtype))
            found.append(flat.reshape(shape).to(dtype, copy=True))
        return found

    def _places(self) -> Iterator[tuple[tuple[int, ...], int, torch.dtype]]:
        return zip(self.shapes, self._offsets, self._dtypes, strict=True)

    def arguments(self, path: Path, launch: Launch, checked: bool) -> list[str]:
        """Return the command-line arguments of the executable."""
        workers = 1 if checked else _cores()
        numbers = [self._input_bytes, self.bytes, workers, *launch.grid, *launch.group]
        for i, (shape, offset, dtype) in enumerate(self._places()):
            # The first index of a Metal tensor is its contiguous axis, which is torch's last one.
            item = narrow(dtype).itemsize
            numbers += [offset, i >= self._inputs, item, len(shape), *reversed(shape)]
        return [str(path), *(str(int(n)) for n in numbers)]


def _up(place: int, step: int) -> int:
    return -(-place // step) * step
