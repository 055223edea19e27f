"""The file that describes the parts of a split model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..asset.replacing import ASSET, Kind
from ..errors import ConversionError

MANIFEST = "manifest.json"
_FORMAT = "coreai-torch parts"
_VERSION = 1


@dataclass(frozen=True)
class PartFile:
    """One asset of the chain; its inputs are inputs of the model or outputs of earlier parts."""

    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...]
    weight_bytes: int
    file_bytes: int
    first_module: str  # the module of its first op


@dataclass(frozen=True)
class Manifest:
    """The ports of a split model and its parts, in the order in which they run."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...]
    parts: tuple[PartFile, ...]
    shared_weights: tuple[str, ...] = ()  # stored in more than one part

    def write(self, path: Path) -> None:
        """Write the manifest as JSON."""
        data = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        path.write_text(json.dumps(data, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder."""
        path = folder / MANIFEST
        if not path.is_file():
            raise FileNotFoundError(f"{folder} is not a split model: {MANIFEST} is missing")
        try:
            data = json.loads(path.read_text())
            if data["format"] != _FORMAT or data["version"] != _VERSION:
                raise ValueError(f"its format is {data['format']!r}, version {data['version']!r}")
            parts = tuple(_part(part) for part in data["parts"])
            inputs, outputs, states = (tuple(data[n]) for n in ("inputs", "outputs", "states"))
            return cls(inputs, outputs, states, parts, tuple(data["shared_weights"]))
        except (ValueError, KeyError, TypeError) as cause:
            raise ConversionError(
                f"{path} cannot be read: {cause}\n  try   split the model again"
            ) from cause


def _foreign_names(folder: Path) -> list[str] | None:
    """Return what is in a folder beside the files of a split; None if it is not a split model."""
    try:
        files = [part.file for part in Manifest.read(folder).parts]
    except (ConversionError, FileNotFoundError):
        return None
    known = {MANIFEST, *(file for file in files if ASSET.foreign(folder / file) == [])}
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in known)


SPLIT = Kind("a folder of an earlier split", _foreign_names)


def _part(data: dict[str, Any]) -> PartFile:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return PartFile(**fields)
