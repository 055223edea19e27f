"""The folder of a run: results as Parquet, written as they come, each exactly once.

`journal-N.jsonl` takes one line for each result. When it is full, its rows become `part-N.parquet`,
which is renamed into place; from then on the journal N is ignored. At the end all parts are merged
into `results.parquet`, whose metadata names the last part that it contains; parts up to that one
are ignored. So each row counts once, wherever the process is killed. A later row of a task replaces
an earlier one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import OverwriteError, PlanError
from .columns import COLUMNS

RESULTS, RUN = "results.parquet", "run.json"
_PARTS = "parts"
_MERGED = b"coreai_torch.parts"  # key of the metadata: the number of the last merged part
_PART = re.compile(r"part-(\d+)\.parquet")
_JOURNAL = re.compile(r"journal-(\d+)\.jsonl")
_BATCH = 1000  # rows of a part


def parquet() -> Any:
    """Return `pyarrow.parquet`, or None if it is not installed: the journal keeps all rows then."""
    try:
        import pyarrow.parquet
    except ImportError:
        return None
    return pyarrow.parquet


class Writer:
    """The only writer of a folder; a context manager."""

    def __init__(self, folder: Path | str, batch: int = _BATCH) -> None:
        self.folder = Path(folder)
        self._parts = self.folder / _PARTS
        self._batch = batch
        self._rows: list[dict[str, Any]] = []
        self._journal: IO[bytes] | None = None
        self._lock: IO[str] | None = None

    def __enter__(self) -> Writer:
        """Lock the folder, remove what an interrupted run left, and continue its journal."""
        if self.folder.exists() and not self.folder.is_dir():
            raise PlanError(f"{self.folder} is a file\n  try   pass a folder for the results")
        _check_own(self.folder)
        self._parts.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder / "lock")
        try:
            self._continue_journal()
        except BaseException:
            self._lock.close()
            raise
        return self

    def _continue_journal(self) -> None:
        _remove_obsolete(self.folder)
        self._number = _last_part(self.folder) + 1
        path = self._parts / f"journal-{self._number}.jsonl"
        self._rows, valid = _journal_rows(path)
        self._journal = path.open("ab")
        self._journal.truncate(valid)  # without the half line of a crash

    def write(self, row: Mapping[str, Any]) -> None:
        """Store a row; it survives a crash of this process from here on."""
        assert self._journal is not None
        self._journal.write(json.dumps(row).encode() + b"\n")
        self._journal.flush()
        if parquet() is not None:
            self._rows.append(dict(row))
            if len(self._rows) >= self._batch:
                self._roll()

    def _roll(self) -> None:
        """Turn the journal into a part."""
        if not self._rows:
            return
        assert self._journal is not None
        _write_parquet(self._parts / f"part-{self._number}.parquet", [self._rows], {})
        self._journal.close()
        Path(self._journal.name).unlink()
        self._rows = []
        self._number += 1
        self._journal = (self._parts / f"journal-{self._number}.jsonl").open("wb")

    def __exit__(self, *ended: object) -> None:
        """Merge all parts into `results.parquet` and unlock the folder."""
        assert self._journal is not None
        assert self._lock is not None
        try:
            if parquet() is not None:
                self._roll()
                _merge(self.folder)
        finally:
            self._journal.close()
            self._lock.close()


def _check_own(folder: Path) -> None:
    """Raise if a file that a run writes is there and was not written by a run."""
    for name, is_own in ((RUN, _is_description), (RESULTS, _is_table)):
        path = folder / name
        if path.exists() and not is_own(path):
            raise OverwriteError(
                f"{path} was not written by a fleet run\n  try   pass another folder"
            )


def _is_description(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "coreai_torch" in content


def _is_table(path: Path) -> bool:
    library = parquet()
    if library is None:
        return True  # without pyarrow, the file stays as it is
    with _opened(library, path) as file:
        return _MERGED in (file.metadata.metadata or {})


def _locked(path: Path) -> IO[str]:
    import fcntl

    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        file.close()
        raise PlanError(
            f"another run writes to {path.parent}\n  try   wait for it, or pass another folder"
        ) from cause
    return file


def read_rows(folder: Path | str) -> list[dict[str, Any]]:
    """Return the latest row of each task, in the order they were written."""
    latest: dict[str, dict[str, Any]] = {}
    for row in iterate(folder):
        latest.pop(row["id"], None)
        latest[row["id"]] = row
    return list(latest.values())


def iterate(folder: Path | str, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield all rows, oldest first; `columns` reads only some of them."""
    folder = Path(folder)
    if folder.suffix == ".parquet":
        yield from _parquet_rows(folder, columns)
        return
    if not folder.is_dir() or not ((folder / _PARTS).is_dir() or (folder / RESULTS).is_file()):
        raise PlanError(f"{folder} has no results\n  try   pass the folder of a fleet run")
    for path in _tables(folder):
        yield from _parquet_rows(path, columns)
    last = _last_part(folder)
    for number, path in _numbered(folder, _JOURNAL):
        if number > last:
            for row in _journal_rows(path)[0]:
                yield _with_columns(row, columns)


def _tables(folder: Path) -> list[Path]:
    """Return the files with valid rows: the merged one, and later parts."""
    merged = _merged(folder)
    parts = [path for number, path in _numbered(folder, _PART) if number > merged]
    return [folder / RESULTS, *parts] if (folder / RESULTS).is_file() else parts


def _parquet_rows(path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    library = parquet()
    if library is None:
        raise PlanError(
            f"{path} needs pyarrow, which is not installed\n  try   pip install coreai-torch[fleet]"
        )
    if not path.is_file():
        raise PlanError(f"the file {path} does not exist\n  try   pass the folder of a fleet run")
    with _opened(library, path) as file:
        known = set(file.schema_arrow.names)
        if "id" not in known:
            raise PlanError(f"{path} has no column 'id'\n  try   pass the results of a fleet run")
        wanted = None if columns is None else [name for name in columns if name in known]
        for batch in file.iter_batches(batch_size=_BATCH, columns=wanted):
            for row in batch.to_pylist():
                yield _with_columns(row, columns)


def _opened(library: Any, path: Path) -> Any:
    try:
        return library.ParquetFile(path)
    except (ValueError, OSError) as cause:  # ArrowInvalid is a ValueError
        raise PlanError(
            f"{path} cannot be read: {cause}\n"
            "  try   pass the folder of a fleet run, or delete the file"
        ) from cause


def _with_columns(row: Mapping[str, Any], columns: Sequence[str] | None) -> dict[str, Any]:
    """Return some columns, or all; those of later versions are empty in older results."""
    empty = {name: "" if COLUMNS[name] is str else None for name in columns or COLUMNS}
    return {name: row.get(name, missing) for name, missing in empty.items()}


def _journal_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a journal and their bytes; the last line may be cut by a crash."""
    rows, valid = [], 0
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
        if not line.endswith(b"\n"):
            break
        rows.append(json.loads(line))
        valid += len(line)
    return rows, valid


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    files = [(pattern.fullmatch(path.name), path) for path in (folder / _PARTS).glob("*")]
    return sorted((int(name[1]), path) for name, path in files if name is not None)


def _last_part(folder: Path) -> int:
    return max([_merged(folder), *(number for number, _ in _numbered(folder, _PART))])


def _merged(folder: Path) -> int:
    """Return the number of the last part that `results.parquet` contains."""
    path, library = folder / RESULTS, parquet()
    if library is None or not path.is_file():
        return 0
    with _opened(library, path) as file:
        return int((file.metadata.metadata or {}).get(_MERGED, b"0"))


def _remove_obsolete(folder: Path) -> None:
    merged, last = _merged(folder), _last_part(folder)
    for number, path in _numbered(folder, _PART):
        if number <= merged:
            path.unlink()
    for number, path in _numbered(folder, _JOURNAL):
        if number <= last:
            path.unlink()
    for path in [*(folder / _PARTS).glob(".part-*.new"), folder / f".{RESULTS}.new"]:
        path.unlink(missing_ok=True)


def _merge(folder: Path) -> None:
    """Merge all parts into `results.parquet`: one row for each task, the latest."""
    last = _last_part(folder)
    if last == _merged(folder):
        return
    newest: dict[str, int] = {}
    for place, row in enumerate(iterate(folder, ["id"])):
        newest[row["id"]] = place
    kept = set(newest.values())
    rows = (row for place, row in enumerate(iterate(folder)) if place in kept)
    _write_parquet(folder / RESULTS, _batches(rows), {_MERGED: str(last).encode()})
    _remove_obsolete(folder)


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _write_parquet(path: Path, batches: Any, metadata: dict[bytes, bytes]) -> None:
    """Write a file beside `path`, then rename it."""
    import pyarrow

    library = parquet()
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    fields = [(name, kinds[kind]) for name, kind in COLUMNS.items()]
    schema = pyarrow.schema(fields, metadata=metadata or None)
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        with library.ParquetWriter(file, schema) as writer:
            for batch in batches:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
