"""Compute plans: the units that a device chose for the operations of a program."""

from __future__ import annotations

import json
import linecache
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

import torch

from ..asset import reading
from ..errors import ArgumentTypeError, ConversionError
from .graph import Operation, operation_ids

_TORCH = str(Path(torch.__file__).parent)
_ALIASES = {"ANE": "NEURAL_ENGINE"}


class ComputeDevice(Enum):
    """A compute unit; `UNKNOWN` is that of an operation without an entry."""

    CPU = "CPU"
    GPU = "GPU"
    NEURAL_ENGINE = "NEURAL_ENGINE"
    UNKNOWN = "UNKNOWN"

    @classmethod
    def from_string(cls, text: str) -> ComputeDevice:
        """Return the device with a name, in any case and spacing; `UNKNOWN` for other names."""
        name = "_".join(str(text).replace("_", " ").upper().split())
        name = _ALIASES.get(name, name)
        joined = {device.name.replace("_", ""): device for device in cls}
        return joined.get(name.replace("_", ""), cls.UNKNOWN)


@dataclass(frozen=True)
class ComputePlanEntry:
    """The devices of an operation, and what the compiler said about it."""

    operation_id: int
    devices: frozenset[ComputeDevice] = frozenset()
    validation_messages: frozenset[str] = frozenset()
    residency: str = "PLACED"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "operation_id": self.operation_id,
            "residency": self.residency,
            "devices": sorted(device.name for device in self.devices),
            "validation_messages": sorted(self.validation_messages),
        }


class ComputePlan:
    """The entries of a plan, by the ids of operations."""

    def __init__(self, entries: Mapping[int, ComputePlanEntry]) -> None:
        """Create a plan from entries by id."""
        self.entries = dict(entries)

    @classmethod
    async def from_program(
        cls, program: reading.Source, specialization_options: Any = None
    ) -> ComputePlan:
        """Raise an error: the runtime that coreai-core installs has no interface to plans."""
        raise ConversionError(
            "a compute plan needs a compiler for devices, and this runtime has none\n"
            "  try   save ComputePlan.to_dict(program) of the published converter as JSON on a "
            "Mac, then call ComputePlan.read(path)"
        )

    @classmethod
    def read(cls, source: Path | str | Mapping[str, Any]) -> ComputePlan:
        """Return the plan that `to_dict` described: the path of a JSON file, or its content."""
        data = source
        if isinstance(source, Path | str):
            try:
                data = json.loads(Path(source).read_text(encoding="utf-8"))
            except (OSError, ValueError) as cause:
                raise ConversionError(f"{source} is not a compute plan: {cause}") from cause
        listed = data.get("entries") if isinstance(data, Mapping) else None
        if not isinstance(listed, list | Mapping):
            raise ConversionError(
                f"{source} is not a compute plan: it has no entries\n"
                "  try   pass the JSON of ComputePlan.to_dict"
            )
        rows = listed.values() if isinstance(listed, Mapping) else listed
        entries = [_entry(row) for row in rows]
        return cls({entry.operation_id: entry for entry in entries})

    def get_devices(self, op: Any) -> set[ComputeDevice]:
        """Return the devices of an operation: an `Operation`, an op that was read, or an id."""
        return self.devices_for_id(_id(op))

    def devices_for_id(self, id: int) -> set[ComputeDevice]:
        """Return the devices of an operation; `UNKNOWN` if the plan has no entry for it."""
        entry = self.entries.get(id)
        return {ComputeDevice.UNKNOWN} if entry is None else set(entry.devices)

    def get_validation_messages(self, op: Any) -> set[str]:
        """Return what the compiler said about an operation."""
        entry = self.entries.get(_id(op))
        return set() if entry is None else set(entry.validation_messages)

    def annotate_source(
        self, program: reading.Source, stream: IO[str], annotate_all_files: bool = False
    ) -> None:
        """Write the source file that most operations come from, with the devices of each line.

        The program needs debug info: convert it in debug mode. `annotate_all_files` writes all
        files.
        """
        found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, file, line in self._lines(program):
            found[file][line].append(number)
        files = sorted(found, key=lambda file: (-sum(map(len, found[file].values())), file))
        for file in files if annotate_all_files else files[:1]:
            stream.write(f"{file}\n")
            for number, text in enumerate(linecache.getlines(file), 1):
                stream.write(f"{self._remark(found[file].get(number, ())):>32} | {text.rstrip()}\n")

    def _lines(self, program: reading.Source) -> Iterator[tuple[int, str, int]]:
        """Yield the operations with entries, and the innermost lines outside of torch."""
        for _, op, number in operation_ids(reading.read(program, largest=0)):
            if op.place.line and number in self.entries:
                frames = [(op.place.file, op.place.line), *op.place.callers]
                own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
                yield number, *(own or frames)[0]

    def _remark(self, ids: Any) -> str:
        counts = Counter(device.name for id_ in ids for device in self.devices_for_id(id_))
        return ", ".join(f"{count} {name}" for name, count in counts.most_common())

    def to_dict(self, program: reading.Source | None = None) -> dict[str, Any]:
        """Return plain data; with the program also the names of its operations."""
        counts = Counter(d.name for entry in self.entries.values() for d in entry.devices)
        data: dict[str, Any] = {
            "entries": [entry.to_dict() for _, entry in sorted(self.entries.items())],
            "entry_count": len(self.entries),
            "device_histogram": dict(sorted(counts.items())),
        }
        if program is not None:
            numbered = operation_ids(reading.read(program, largest=0))
            names = {number: op.name for _, op, number in numbered}
            data["operation_names"] = {str(number): name for number, name in names.items()}
            data["operations_without_entry"] = sorted(names.keys() - self.entries.keys())
        return data

    def write(self, path: Path | str, program: reading.Source | None = None) -> None:
        """Write `to_dict` as JSON, for `read`."""
        Path(path).write_text(json.dumps(self.to_dict(program), indent=1), encoding="utf-8")


def _entry(row: Any) -> ComputePlanEntry:
    """Return an entry; `devices` is a list of names, or one name."""
    if not isinstance(row, Mapping) or "operation_id" not in row:
        raise ConversionError(f"{row!r} is not an entry of a compute plan: it has no operation_id")
    devices = row.get("devices", row.get("device", ()))
    messages = row.get("validation_messages", ())
    return ComputePlanEntry(
        int(row["operation_id"]),
        frozenset(map(ComputeDevice.from_string, _listed(devices))),
        frozenset(map(str, _listed(messages))),
        str(row.get("residency", "PLACED")),
    )


def _listed(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) else list(given or ())


def _id(op: Any) -> int:
    """Return the id of an operation."""
    found = op
    if isinstance(op, Operation):
        found = op.key
    elif isinstance(op, reading.Op):
        found = op.place.op_id
    if not isinstance(found, int):
        raise ArgumentTypeError(
            f"{op!r} has no id\n  try   pass an operation of a graph of the program, or an id"
        )
    return found
