"""What the published converter emits: converted once, then read from a cache.

The cache lies outside the working tree, so that all checkouts share it: in the folder that
`COREAI_TORCH_FORMS_CACHE` names, or in `~/.cache/coreai_torch_forms`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import nn

_DEFAULT = Path.home() / ".cache" / "coreai_torch_forms"
CACHE = Path(os.environ.get("COREAI_TORCH_FORMS_CACHE", _DEFAULT))
os.environ.setdefault("COREAI_TORCH_BENCH_HOME", str(CACHE / "environments"))

from benchmarks.environments import PUBLISHED  # noqa: E402  it reads the variable

_CHILD = Path(__file__).parent / "child.py"
_LIBRARIES = ("torch", "transformers", "timm", "diffusers")
_FORMAT = 2  # of the cached figures


def key(name: str, module: nn.Module, args: tuple[torch.Tensor, ...]) -> str:
    """Return the name of the cached file: another model, call, input or version has another."""
    inputs = [(str(a.dtype), tuple(a.shape)) for a in args]
    state = [(n, str(t.dtype), tuple(t.shape)) for n, t in module.state_dict().items()]
    function = getattr(module, "function", None)
    code = list(_code(getattr(function, "__code__", None), function))
    libraries = [PUBLISHED.packages, *(_version(library) for library in _LIBRARIES)]
    parts = repr((_FORMAT, _plain(repr(module)), inputs, state, code, libraries))
    digest = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return f"{re.sub(r'[^a-zA-Z0-9]+', '_', name)}-{digest}.json"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _plain(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "", text)


def _code(code: CodeType | None, function: object = None) -> Iterator[str]:
    """Yield what a function does: its bytecode, names and constants, and what it closes over."""
    if code is None:
        return
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else (repr(constant),)
    for cell in getattr(function, "__closure__", None) or ():
        held = cell.cell_contents
        inner = getattr(held, "__code__", None)
        yield from _code(inner, held) if inner else (_plain(repr(held)),)


def cached(name: str) -> dict[str, Any] | None:
    """Return the figures in the cache."""
    file = CACHE / "published" / name
    return json.loads(file.read_text()) if file.exists() else None


class Published:
    """The published converter in its own environment, started when it is needed first."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def figures(self, name: str, source: str) -> dict[str, Any]:
        """Convert an exported program; return its figures and keep them in the cache."""
        from .figures import figures

        with tempfile.TemporaryDirectory() as folder:
            asset = Path(folder) / "m.aimodel"
            problem = self._converted(source, asset)
            found = {"problem": problem} if problem else figures(asset)
        file = CACHE / "published" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(found) + "\n")
        part.replace(file)
        return found

    def _converted(self, source: str, asset: Path) -> str:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{source}\t{asset}\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("{"):
                return str(json.loads(line)["problem"])
        raise RuntimeError("the process of the published converter ended")

    def _start(self) -> subprocess.Popen[str]:
        problem = PUBLISHED.make()
        if problem:
            raise RuntimeError(f"the published converter was not installed: {problem}")
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [PUBLISHED.python, _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=tempfile.gettempdir(),  # in the project's folder its package would be imported
            env={**inherited, "PYTHONWARNINGS": "ignore"},
        )
        return self._process
