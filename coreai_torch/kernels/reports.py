"""Describe the errors that the emulator finds while a kernel runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import compiler
from .source import Source

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """One error of a kernel, such as an access out of bounds."""

    kind: str  # bounds, race, uninitialised, unwritten, input, barrier, stack, crash, shared
    what: str
    thread: tuple[int, ...] | None = None
    place: tuple[str, int, str] | None = None

    def __str__(self) -> str:
        """Return the description, the thread and the author's line."""
        text = self.what
        if self.thread is not None:
            text += f", in the thread at {self.thread}"
        if self.place is not None:
            origin, number, line = self.place
            text += f"\n    {origin}:{number} | {line.strip()}"
        return text


@dataclass(frozen=True)
class _Reader:
    source: Source
    shapes: Sequence[Shape]  # of all tensors
    inputs: int

    def tensor(self, number: int) -> str:
        what = "input" if number < self.inputs else "result"
        return f"the {what} {self.source.parameters[number].name!r}"

    def index(self, number: int, flat: int) -> list[int]:
        """Convert an offset in elements to an index in torch."""
        found: list[int] = []
        for size in reversed(self.shapes[number]):
            found.insert(0, flat % size)
            flat //= size
        return found

    def memory(self, number: str, flat: str, name: str) -> str:
        if int(number) < 0:
            return f"threadgroup memory {name!r}, byte {flat}"
        return f"{self.tensor(int(number))} at {self.index(int(number), int(flat))}"

    def bounds(self, number: str, axis: str, index: str, extent: str) -> str:
        shape = list(self.shapes[int(number)])
        return (
            f"index {index} is out of bounds for index {axis} of {self.tensor(int(number))} with "
            f"size {extent} (its shape in torch is {shape}; Metal's first index is torch's last "
            "axis)"
        )

    def astray(self, number: str, distance: str) -> str:
        return f"accesses a pointer {distance} bytes past {self.tensor(int(number))}"

    def array(self, line: str, index: str, type_: str) -> str:
        return f"index {index} is out of bounds for an array of type {type_.replace('metal::', '')}"

    def race(self, number: str, flat: str, name: str, how: str, other: str) -> str:
        return f"data race on {self.memory(number, flat, name)}: {how} the thread at ({other})"

    def uninitialised(self, number: str, flat: str, name: str) -> str:
        return f"reads {self.memory(number, flat, name)} before it is written"

    def unwritten(self, number: str, flat: str, count: str, total: str) -> str:
        where = self.index(int(number), int(flat))
        return (
            f"{self.tensor(int(number))} is never written at {where} and at "
            f"{int(count) - 1} more of its {total} elements"
        )

    def input(self, number: str, flat: str) -> str:
        return f"writes to {self.tensor(int(number))} at {self.index(int(number), int(flat))}"

    def barrier(self, line: str, other: str) -> str:
        origin, number, _ = self.source.place(int(other)) or ("line", int(other), "")
        return f"other threads of the threadgroup wait at another barrier, at {origin}:{number},"

    def early(self, line: str, waiting: str, threads: str) -> str:
        return (
            f"only {waiting} of the {threads} threads of the threadgroup reach this "
            "threadgroup_barrier: the others have returned"
        )

    def stack(self, size: str) -> str:
        return f"the thread needs more than {int(size) // 1024} KiB of local variables"

    def shared(self, name: str) -> str:
        return f"too many variables in threadgroup memory, the last of them {name!r}"

    def crash(self, number: str) -> str:
        return f"the kernel crashed with signal {number}"


_LINED = ("array", "barrier", "early")  # kinds whose first detail is a line of the source


def read(
    ran: subprocess.CompletedProcess[str],
    source: Source,
    shapes: Sequence[Shape],
    inputs: int,
    program: Path,
) -> list[Finding]:
    """Parse the findings that the runtime printed, one per line."""
    reader = _Reader(source, shapes, inputs)
    found = []
    for line in ran.stdout.splitlines():
        kind, address, thread, *details = line.split("\t")
        describe: Callable[..., str] = getattr(reader, kind)
        lines = [int(details[0])] if kind in _LINED else []
        lines += compiler.line_of(program, int(address, 16))
        place = next((p for p in map(source.place, lines) if p), None)
        at = None if kind == "unwritten" else tuple(int(t) for t in thread.split(","))
        found.append(Finding(kind, describe(*details), at, place))
    return found
