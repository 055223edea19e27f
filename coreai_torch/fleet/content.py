"""Content hashes: a task is done if nothing changed that its result depends on."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

from .task import Task

_PACKAGE = Path(__file__).parents[1]
_INPUT_FILE = re.compile(r"^(?:\w+=)?@(.+)")  # x=@file.npy


class Hasher:
    """Computes the keys of tasks; each file is read once."""

    def __init__(self) -> None:
        self._files: dict[Path, str] = {}
        self._sources: dict[tuple[str, str], list[str]] = {}

    def keyed(self, task: Task) -> Task:
        """Return the task with its content hash."""
        base = Path(task.folder)
        data = task.as_dict()
        for name in ("limits", "key", "code", "keep", "folder", "preload"):
            del data[name]
        data["weights"] = self._weights(task, base)
        data["model_code"] = self._source(task.source, base)
        data["call_code"] = self._source(task.call, base) if task.call else []
        data["versions"] = list(versions())
        data["libraries"] = _installed(task.python) if task.python else []
        digest = hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode())
        return replace(task, key=digest.hexdigest()[:32], code=code_digest())

    def _weights(self, task: Task, base: Path) -> list[str]:
        named = [task.checkpoint] if task.checkpoint else []
        named += [task.source] if task.source.endswith(".pt2") else []
        named += [found[1] for given in task.inputs if (found := _INPUT_FILE.search(given))]
        folder = base / task.source.removeprefix("transformers:")
        if task.source.startswith("transformers:") and folder.is_dir():
            named += sorted(str(file) for file in folder.rglob("*") if file.is_file())
        return [self._file(base / name) for name in named]

    def _file(self, path: Path) -> str:
        if path not in self._files:
            try:
                with path.open("rb") as file:
                    self._files[path] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:  # the task reports that it cannot read the file
                self._files[path] = f"unreadable: {error.strerror}"
        return self._files[path]

    def _source(self, source: str, base: Path) -> list[str]:
        """Return digests of the factory's module and of the local modules that it imports."""
        path, found, _ = source.rpartition(":")
        if not found:
            return []
        known = (path, str(base))
        if known not in self._sources:
            self._sources[known] = list(self._digests(path, base))
        return self._sources[known]

    def _digests(self, path: str, base: Path) -> Iterator[str]:
        root, file = _located(path, base)
        if file is None:
            yield _library_version(path.partition(".")[0])
            return
        imports = _Imports((root, *_search_folders(base)))
        imports.follow(file, root)
        for local, within in sorted(imports.files.items()):
            yield f"{local.relative_to(within)} {self._file(local)}"
        yield from sorted(map(_library_version, imports.libraries))


def _search_folders(base: Path) -> list[Path]:
    """Return the folders of a worker's `sys.path` that may have modules of the user."""
    folders = [base, Path.cwd(), *map(Path, sys.path)]
    return [folder.absolute() for folder in folders if not _is_installed_libraries(folder)]


def _located(path: str, base: Path) -> tuple[Path, Path | None]:
    """Return the search folder of a module and its file; no file for an installed library."""
    if path.endswith(".py"):
        file = (base / path).absolute()
        return file.parent, file
    top = path.partition(".")[0]
    for folder in _search_folders(base):
        for name in (f"{path.replace('.', '/')}.py", f"{path.replace('.', '/')}/__init__.py"):
            if (folder / name).is_file():
                return folder, folder / name
        if (folder / top).is_dir():
            break
    return base, None


@cache
def _is_installed_libraries(folder: Path) -> bool:
    paths = sysconfig.get_paths()
    return folder in {Path(paths[name]) for name in ("purelib", "platlib", "stdlib", "platstdlib")}


class _Imports:
    """The local files that a file imports, directly or not, and the libraries."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = list(dict.fromkeys(roots))
        self._seen: set[str] = set()
        self.files: dict[Path, Path] = {}  # with the folder that their imports start from
        self.libraries: set[str] = set()

    def follow(self, file: Path, root: Path) -> None:
        """Add a file and what it imports."""
        waiting = [(file, root)]
        while waiting:
            current, root = waiting.pop()
            # `versions` has the digest of this package.
            if current in self.files or not current.is_file() or _PACKAGE in current.parents:
                continue
            self.files[current] = root
            for name in _names(current, root):
                if name and name not in self._seen:
                    self._seen.add(name)
                    waiting += self._found(name)

    def _found(self, name: str) -> list[tuple[Path, Path]]:
        """Return the files of a module and of its packages; note a library."""
        for root in self._roots:
            if found := [(path, root) for path in _candidates(name, root) if path.is_file()]:
                return found
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names:
            self.libraries.add(top)
        return []


def _names(file: Path, root: Path) -> Iterator[str]:
    """Yield the full names of the modules, and of possible modules, that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # the task reports it; a null byte is a ValueError
        return
    package = file.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            parts = [*above, *(node.module or "").split(".")]
            start = ".".join(filter(None, parts))
            yield start
            yield from (f"{start}.{alias.name}".lstrip(".") for alias in node.names)


def _candidates(name: str, root: Path) -> Iterator[Path]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        path = root.joinpath(*parts[:count])
        yield path.with_suffix(".py")
        yield path / "__init__.py"


@cache
def _installed(python: str) -> list[str]:
    """Return the distributions of another environment, by the names of their folders."""
    return sorted(path.name for path in Path(python).parents[1].glob("lib/*/site-packages/*-info"))


@cache
def _library_version(name: str) -> str:
    for distribution in _distributions().get(name, [name]):
        if version := library_version(distribution):
            return f"{distribution} {version}"
    return f"{name} of unknown version"


@cache
def _distributions() -> dict[str, list[str]]:
    """Return the distributions of each top-level module; reading them all takes a second."""
    return {name: list(found) for name, found in metadata.packages_distributions().items()}


@cache
def code_digest() -> str:
    """Return the digest of this package's source, which changes before its version does."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        digest.update(str(file.relative_to(_PACKAGE)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def versions() -> tuple[str, ...]:
    """Return what every result depends on: this package, torch, coreai-core and Python."""
    libraries = tuple(f"{name} {library_version(name)}" for name in ("torch", "coreai-core"))
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return (code_digest(), *libraries, python)


@cache
def library_version(distribution: str) -> str:
    """Return the installed version of a distribution, or an empty text."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
