"""The named blobs in the bytecode of an asset, mapped into memory."""

from __future__ import annotations

import hashlib
import mmap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import torch
from coreai.authoring import AIModelAsset, AIProgram

from ..errors import AssetError

_Result = TypeVar("_Result")
_Identity = tuple[tuple[int, int, int, int], ...]

_ATTEMPTS = 100
_PAUSE = 0.002  # seconds between two attempts


def read_steadily(path: Path, read: Callable[[], _Result]) -> _Result:
    """Return the result of `read`, which is called again if the asset changed meanwhile."""
    for _ in range(_ATTEMPTS):
        before, error = _identity(path), None
        try:
            result = read()
        except Exception as raised:
            error = raised
        if _identity(path) == before and not (before is None and _is_moving(path)):
            break
        time.sleep(_PAUSE)
    if error is not None:
        raise error
    return result


def _identity(path: Path) -> _Identity | None:
    """Return what differs between two assets at the same path; None if there is none."""
    try:
        found = [file.stat() for file in (path, *sorted(path.iterdir()))]
    except OSError:
        return None
    return tuple((one.st_dev, one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def _is_moving(path: Path) -> bool:
    """Whether another process may be replacing the asset by two renames."""
    return any(path.parent.glob(f"{workshop_prefix(path)}*"))


def workshop_prefix(path: Path) -> str:
    """Return how the names of folders begin in which a new version of `path` is written."""
    return f".{path.stem}-"


BYTECODE, HASH, METADATA = "main.mlirb", "main.hash", "metadata.json"
_OF_FINDER = (".DS_Store", "._")  # how the names of files begin that macOS adds
_MAGIC = b"ML\xefR"
_STRINGS, _RESOURCES, _OFFSETS = 0, 5, 6
_BLOB = 0  # an entry may also be a bool or a string


def asset_at(path: Path) -> AIModelAsset:
    """Load the asset of a folder; raise if it is missing or damaged.

    Another process may replace the asset meanwhile.
    """
    return read_steadily(path, lambda: _loaded(path))


def asset_and_program(path: Path) -> tuple[AIModelAsset, AIProgram]:
    """Load the asset of a folder and its program; raise if it is missing or damaged."""

    def read() -> tuple[AIModelAsset, AIProgram]:
        asset = _loaded(path)
        return asset, program_of(asset)

    return read_steadily(path, read)


def program_of(asset: AIModelAsset) -> AIProgram:
    """Read the program of an asset; coreai-core ends the process if the bytecode is missing."""
    if not (Path(asset.path) / BYTECODE).is_file():
        raise _not_an_asset(Path(asset.path))
    return asset.program


def _loaded(path: Path) -> AIModelAsset:
    _check_once(path)
    try:
        return AIModelAsset.load(path)
    except RuntimeError as cause:
        raise AssetError(
            f"{path} is damaged: {cause}\n  try   save or copy the asset again"
        ) from cause


def check(asset: Path) -> None:
    """Raise if there is no asset at the path, or if its bytecode is damaged."""
    read_steadily(asset, lambda: _check_once(asset))


def _check_once(asset: Path) -> None:
    stored, program = asset / HASH, asset / BYTECODE
    if not asset.exists():
        raise FileNotFoundError(f"there is no asset at {asset}")
    if not program.is_file():
        raise _not_an_asset(asset)
    if not stored.exists():
        problem = "" if _is_whole(program) else "it ends too early"
    else:
        problem = (
            "" if hash_of(program) == stored.read_bytes() else "its hash differs from main.hash"
        )
    if problem:
        raise AssetError(
            f"{asset} is damaged: {BYTECODE}: {problem}\n  try   save or copy the asset again"
        )


def _not_an_asset(path: Path) -> AssetError:
    return AssetError(
        f"{path} is not an .aimodel: {BYTECODE} is missing\n  try   pass the path of an .aimodel"
    )


def foreign_names(folder: Path) -> list[str] | None:
    """Return the names in an asset that do not belong to it; None if the folder is not an asset."""
    if not (folder / BYTECODE).is_file():
        return None
    names = sorted(entry.name for entry in folder.iterdir())
    return [n for n in names if not (n == METADATA or n.startswith(("main.", *_OF_FINDER)))]


def hash_of(file: Path) -> bytes:
    """Return the SHA-256 of a file, which is read as a stream."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _is_whole(bytecode: Path) -> bool:
    """Whether the sections fill the file to its end, as far as the layout is known."""
    if not bytecode.stat().st_size:
        return False
    with (
        bytecode.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory,
    ):
        if memory[:4] != _MAGIC:
            return False
        try:
            ends = [start + length for _, (start, length) in _sections(memory)]
        except IndexError:
            return False
        return bool(ends) and ends[-1] == len(memory)


def mapped(bytecode: Path) -> Mapping[str, torch.Tensor]:
    """Return the bytes of every blob by name; they are read from the file when used.

    Empty for a file whose layout is not known here: the compiler then hands out copies.
    """
    with bytecode.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if memory[:4] != _MAGIC:
        return {}
    sections = dict(_sections(memory))
    if _RESOURCES not in sections or _OFFSETS not in sections:
        return {}
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    names = _strings(_Cursor(memory, sections[_STRINGS][0]))
    at = sections[_RESOURCES][0]
    blobs = {}
    for name, kind, size in _entries(_Cursor(memory, *sections[_OFFSETS]), names):
        if kind == _BLOB:
            cursor = _Cursor(memory, at)
            alignment, length = cursor.number(), cursor.number()
            start = -(-cursor.at // alignment) * alignment
            blobs[name] = whole[start : start + length]
        at += size
    return blobs


class _Cursor:
    """A position in the file that advances with each read."""

    def __init__(self, memory: mmap.mmap, start: int, length: int = 0) -> None:
        self.memory, self.at, self._end = memory, start, start + length

    @property
    def is_done(self) -> bool:
        return self.at >= self._end

    def byte(self) -> int:
        self.at += 1
        return self.memory[self.at - 1]

    def number(self) -> int:
        """Read a variable-length number; the trailing zeros of the first byte give its length."""
        first = self.memory[self.at]
        width = (first & -first).bit_length() if first else 9
        value = int.from_bytes(self.memory[self.at : self.at + width], "little")
        self.at += width
        return value >> (width if first else 8)


def _sections(memory: mmap.mmap) -> Iterator[tuple[int, tuple[int, int]]]:
    cursor = _Cursor(memory, len(_MAGIC), len(memory) - len(_MAGIC))
    cursor.number()  # the version
    cursor.at = memory.find(b"\0", cursor.at) + 1  # the producer
    while not cursor.is_done:
        kind, length = cursor.byte(), cursor.number()
        if kind & 0x80:
            alignment = cursor.number()
            cursor.at = -(-cursor.at // alignment) * alignment
        yield kind & 0x7F, (cursor.at, length)
        cursor.at += length


def _strings(cursor: _Cursor) -> Callable[[int], str]:
    """Return the strings by number; the lengths come first, in reverse order."""
    lengths = [cursor.number() for _ in range(cursor.number())][::-1]
    starts = [cursor.at]
    for length in lengths:
        starts.append(starts[-1] + length)
    return lambda n: cursor.memory[starts[n] : starts[n + 1] - 1].decode()


def _entries(cursor: _Cursor, names: Callable[[int], str]) -> Iterator[tuple[str, int, int]]:
    """Return name, kind and size of every entry: external groups, then dialects."""
    cursor.number()  # the number of external groups; both kinds have the same layout
    while not cursor.is_done:
        cursor.number()  # the name of the group
        for _ in range(cursor.number()):
            name, size = names(cursor.number()), cursor.number()
            yield name, cursor.byte(), size


_CHUNK = 4 << 20
_GROWTH_PAUSE = 0.002  # seconds between two looks at a file that does not grow


class GrowingFile:
    """A file that another process writes from its start to its end, and its SHA-256.

    The hash of 1 GB takes 0.55 s and its bytecode 0.25 s: one after the other, saving takes twice
    as long (coreai-core 1.0.0b3, x86).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_complete = threading.Event()
        self._hash = hashlib.sha256()
        self._hashed = 0  # bytes
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Start to hash the file, in a thread; the file need not exist yet."""
        self._thread.start()

    def digest(self) -> bytes:
        """Hash the rest of the file, which is complete now, and return the digest.

        If a read failed in the thread, the whole file is read again, and raises the error here.
        """
        self.stop()
        if self._hashed != self._path.stat().st_size:
            return hash_of(self._path)
        return self._hash.digest()

    def stop(self) -> None:
        """End the thread at the end of the file as it is now."""
        self._is_complete.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _follow(self) -> None:
        while not self._path.exists():
            if self._is_complete.wait(_GROWTH_PAUSE) and not self._path.exists():
                return
        with suppress(OSError), open(self._path, "rb") as file:
            self._hash_to_end(file)

    def _hash_to_end(self, file: BinaryIO) -> None:
        while True:
            was_complete = self._is_complete.is_set()  # before the read, which then sees the end
            if part := file.read(_CHUNK):
                self._hash.update(part)
                self._hashed += len(part)
            elif was_complete:
                return
            else:
                self._is_complete.wait(_GROWTH_PAUSE)
