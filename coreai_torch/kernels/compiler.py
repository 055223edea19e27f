"""Compile kernels to executables and cache them by content."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import KernelError
from .source import Source

_HERE = Path(__file__).parent / "metal_cpu"
_CANDIDATES = ("g++", "g++-14", "g++-13", "g++-12", "clang++")
_DIAGNOSTIC = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): (?P<rest>.*)$")

_FLAGS = (
    "-std=c++23",
    "-g1",
    "-w",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-pie",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fno-math-errno",
    "-fmax-errors=8",
    "-fno-diagnostics-show-caret",
    "-fdiagnostics-color=never",
)
# `1.0` is a float in Metal. coreai_run.cpp implements the handlers of -fsanitize=bounds.
_KERNEL = ("-fsingle-precision-constant", "-fsanitize=bounds")
_FAST = ("-O2",)
# The instrumentation of ThreadSanitizer; coreai_checks.cpp implements the functions it calls.
_CHECKED = (
    "-O1",
    "-DCOREAI_CHECKED",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
)
_CPU_FEATURES = {"f16c": "-mf16c", "fma": "-mfma", "avx2": "-mavx2"}


class CompileError(KernelError):
    """A kernel whose source does not compile; the message shows the author's lines."""


@functools.cache
def compiler() -> tuple[str, str]:
    """Return the path of the C++ compiler and the output of its --version."""
    preferred = os.environ.get("CXX")
    for name in (preferred,) if preferred else _CANDIDATES:
        path = shutil.which(name)
        if path:
            version = subprocess.run([path, "--version"], capture_output=True, text=True)
            return path, version.stdout
    raise KernelError(
        "running a Metal kernel on the CPU needs a C++ compiler, and none was found\n"
        "  try   install g++ (12 or later), or name one in the environment variable CXX"
    )


@functools.cache
def _cpu_flags() -> tuple[str, ...]:
    try:
        known = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ()
    return tuple(flag for name, flag in _CPU_FEATURES.items() if name in known)


def cache() -> Path:
    """Return the cache folder of compiled kernels."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("COREAI_TORCH_CACHE") or Path(home) / "coreai-torch") / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _headers() -> bytes:
    files = sorted(p for p in _HERE.iterdir() if p.is_file())
    return b"".join(p.name.encode() + p.read_bytes() for p in files)


def _key(*parts: object) -> str:
    digest = hashlib.sha256(_headers())
    for part in (*compiler(), *parts):
        digest.update(repr(part).encode())
    return digest.hexdigest()[:32]


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return a file of the cache; if missing, create it and move it into place atomically."""
    path = cache() / name
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / name
            make(new)
            try:
                os.replace(new, path)
            except OSError:
                if not path.exists():  # otherwise another process created the folder first
                    raise
    return path


def _runtime(checked: bool) -> Path:
    """Return the object file that runs kernels, common to all of them."""
    flags = [*_FLAGS, "-O2", *_cpu_flags(), *(["-DCOREAI_CHECKED"] if checked else [])]

    def make(path: Path) -> None:
        files = [_HERE / "coreai_run.cpp", *([_HERE / "coreai_checks.cpp"] if checked else [])]
        objects = []
        for file in files:
            objects.append(str(path.parent / f"{file.stem}.o"))
            ran = _run([*flags, "-c", str(file), "-o", objects[-1]])
            if ran.returncode:
                raise KernelError(f"{compiler()[0]} cannot compile {file.name}:\n{ran.stderr}")
        ran = _run(["-r", "-nostdlib", *objects, "-o", str(path)])
        if ran.returncode:
            raise KernelError(f"{compiler()[0]} cannot link the runtime:\n{ran.stderr}")

    return _cached(f"runtime-{_key(flags)}.o", make)


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([compiler()[0], *arguments], capture_output=True, text=True)


def _header(flags: Sequence[str]) -> Path:
    """Return the header, precompiled with g++: this takes a quarter of the time."""
    plain = _HERE / "metal_stdlib"
    if "clang" in compiler()[1]:
        return plain  # clang uses precompiled headers with another flag
    name = f"header-{_key(flags)}"

    def make(path: Path) -> None:
        path.mkdir()
        shutil.copy(plain, path / plain.name)
        compiled = path / f"{plain.name}.gch"
        ran = _run([*flags, "-x", "c++-header", str(plain), "-o", str(compiled)])
        if ran.returncode:
            raise KernelError(f"{compiler()[0]} cannot compile {plain.name}:\n{ran.stderr}")

    return _cached(name, make) / plain.name


def build(source: Source, text: str, *, checked: bool) -> Path:
    """Compile the executable that runs one kernel; `text` is its source as C++."""
    flags = [*_FLAGS, *_KERNEL, *(_CHECKED if checked else _FAST), *_cpu_flags()]

    def make(path: Path) -> None:
        file = path.with_suffix(".cpp")
        file.write_text(text)
        unit = str(path.with_suffix(".o"))
        header = ["-I", str(_HERE), "-include", str(_header(flags))]
        ran = _run([*flags, *header, "-c", str(file), "-o", unit])
        if ran.returncode:
            raise CompileError(_describe_errors(source, str(file), ran.stderr))
        link = ["-no-pie", unit, str(_runtime(checked)), "-lpthread", "-lm", "-o", str(path)]
        ran = _run(link)
        if ran.returncode:
            raise CompileError(f"Metal kernel {source.kernel!r} does not link:\n{ran.stderr}")

    return _cached(f"{_key(flags, text)}.exe", make)


def _describe_errors(source: Source, file: str, output: str) -> str:
    """Return the compiler's errors, each with the author's line that caused it."""
    blocks = list(_blocks(source, file, output))
    shown = "\n".join(blocks[:5]) or output.strip()
    return f"Metal kernel {source.kernel!r} does not compile\n{shown}"


def _blocks(source: Source, file: str, output: str) -> Iterator[str]:
    about = ""  # the author's line from which the next error was instantiated
    for line in output.splitlines():
        found = _DIAGNOSTIC.match(line)
        if not found:
            continue
        place = source.place(int(found["line"])) if found["file"] == file else None
        if place and found["rest"].lstrip().startswith("required from"):
            about = _show_line(place, 0)
        if not found["rest"].startswith(("error:", "fatal error:")):
            continue
        message = found["rest"].partition("error: ")[2].replace("metal::", "")
        yield f"  {message}\n{_show_line(place, int(found['column'])) if place else about}".rstrip()
        about = ""


def _show_line(place: tuple[str, int, str], column: int) -> str:
    origin, number, text = place
    left = f"    {origin}:{number} | "
    caret = "\n" + " " * (len(left) + column - 1) + "^" if column else ""
    return f"{left}{text}{caret}"


def line_of(program: Path, address: int) -> list[int]:
    """Return the lines of the kernel's source for a code address, the innermost first."""
    tool = shutil.which("addr2line")
    if not tool or not address:
        return []
    output = subprocess.run(
        [tool, "-i", "-e", str(program), hex(address - 1)], capture_output=True, text=True
    ).stdout
    found = (re.match(r".*\.cpp:(\d+)", line) for line in output.splitlines())
    return [int(m[1]) for m in found if m]
