"""Compiles prepared kernels to programs of their own, once for each content."""

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
# `1.0` is a float in Metal; an index that leaves an array is found by the runtime of ours.
_KERNEL = ("-fsingle-precision-constant", "-fsanitize=bounds")
_FAST = ("-O2",)
# The instrumentation of a race detector; what it calls are the checks of ours.
_CHECKED = (
    "-O1",
    "-DCOREAI_CHECKED",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
)
_WANTED_OF_CPU = {"f16c": "-mf16c", "fma": "-mfma", "avx2": "-mavx2"}


class CompileError(KernelError):
    """A kernel whose source does not compile, shown against the author's lines."""


@functools.cache
def compiler() -> tuple[str, str]:
    """The C++ compiler and what it says of its version."""
    asked = os.environ.get("CXX")
    for name in (asked,) if asked else _CANDIDATES:
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True)
            return path, said.stdout
    raise KernelError(
        "running a Metal kernel on the CPU takes a C++ compiler, and none was found\n"
        "  try   installing g++ (12 or later), or naming one in the environment variable CXX"
    )


@functools.cache
def _cpu_flags() -> tuple[str, ...]:
    try:
        known = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ()
    return tuple(flag for name, flag in _WANTED_OF_CPU.items() if name in known)


def cache() -> Path:
    """Where compiled kernels are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("COREAI_TORCH_CACHE") or Path(home) / "coreai-torch") / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _headers() -> bytes:
    files = sorted(p for p in _HERE.iterdir() if p.is_file())
    return b"".join(p.name.encode() + p.read_bytes() for p in files)


def _key(*parts: object) -> str:
    said = hashlib.sha256(_headers())
    for part in (*compiler(), *parts):
        said.update(repr(part).encode())
    return said.hexdigest()[:32]


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """A file of the cache; made aside and moved into place, so that others never see a part."""
    path = cache() / name
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / name
            make(new)
            try:
                os.replace(new, path)
            except OSError:
                if not path.exists():  # a folder that another process was first to make stays
                    raise
    return path


def _runtime(checked: bool) -> Path:
    """The object that runs kernels, the same for all of them."""
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

    return _made(f"runtime-{_key(flags)}.o", make)


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([compiler()[0], *arguments], capture_output=True, text=True)


def _header(flags: Sequence[str]) -> Path:
    """The header, compiled once for these flags where the compiler can: a quarter of the time."""
    plain = _HERE / "metal_stdlib"
    if "clang" in compiler()[1]:
        return plain  # it takes such a header by another flag
    name = f"header-{_key(flags)}"

    def make(path: Path) -> None:
        path.mkdir()
        shutil.copy(plain, path / plain.name)
        compiled = path / f"{plain.name}.gch"
        ran = _run([*flags, "-x", "c++-header", str(plain), "-o", str(compiled)])
        if ran.returncode:
            raise KernelError(f"{compiler()[0]} cannot compile {plain.name}:\n{ran.stderr}")

    return _made(name, make) / plain.name


def build(source: Source, text: str, *, checked: bool) -> Path:
    """The program that runs one kernel; `text` is its source as C++."""
    flags = [*_FLAGS, *_KERNEL, *(_CHECKED if checked else _FAST), *_cpu_flags()]

    def make(path: Path) -> None:
        file = path.with_suffix(".cpp")
        file.write_text(text)
        unit = str(path.with_suffix(".o"))
        header = ["-I", str(_HERE), "-include", str(_header(flags))]
        ran = _run([*flags, *header, "-c", str(file), "-o", unit])
        if ran.returncode:
            raise CompileError(_explained(source, str(file), ran.stderr))
        link = ["-no-pie", unit, str(_runtime(checked)), "-lpthread", "-lm", "-o", str(path)]
        ran = _run(link)
        if ran.returncode:
            raise CompileError(f"Metal kernel {source.kernel!r} does not link:\n{ran.stderr}")

    return _made(f"{_key(flags, text)}.exe", make)


def _explained(source: Source, file: str, output: str) -> str:
    """The compiler's errors, each under the author's line that it is about."""
    blocks = list(_blocks(source, file, output))
    shown = "\n".join(blocks[:5]) or output.strip()
    return f"Metal kernel {source.kernel!r} does not compile\n{shown}"


def _blocks(source: Source, file: str, output: str) -> Iterator[str]:
    about = ""  # the place in the author's lines that the next error was reached from
    for line in output.splitlines():
        found = _DIAGNOSTIC.match(line)
        if not found:
            continue
        place = source.place(int(found["line"])) if found["file"] == file else None
        if place and found["rest"].lstrip().startswith("required from"):
            about = _shown(place, 0)
        if not found["rest"].startswith(("error:", "fatal error:")):
            continue
        message = found["rest"].partition("error: ")[2].replace("metal::", "")
        yield f"  {message}\n{_shown(place, int(found['column'])) if place else about}".rstrip()
        about = ""


def _shown(place: tuple[str, int, str], column: int) -> str:
    origin, number, text = place
    left = f"    {origin}:{number} | "
    caret = "\n" + " " * (len(left) + column - 1) + "^" if column else ""
    return f"{left}{text}{caret}"


def line_of(program: Path, address: int) -> list[int]:
    """The lines of the kernel's source that an address stands for, the innermost first."""
    tool = shutil.which("addr2line")
    if not tool or not address:
        return []
    said = subprocess.run(
        [tool, "-i", "-e", str(program), hex(address - 1)], capture_output=True, text=True
    )
    found = (re.match(r".*\.cpp:(\d+)", line) for line in said.stdout.splitlines())
    return [int(m[1]) for m in found if m]
