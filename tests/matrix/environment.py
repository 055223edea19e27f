"""Virtual environments with other versions of torch, reused when they exist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("COREAI_TORCH_ENVS", Path.home() / ".cache" / "coreai-torch" / "envs"))
# The libraries of the tests; torch is installed first, so that none of them picks another one.
NEEDED_BYTES = 10 << 30  # of free disk to build an environment
TEST_LIBRARIES = ("expecttest", "grimp", "hypothesis", "pytest>=8", "pytest-xdist", "transformers")


@dataclass(frozen=True)
class Environment:
    """One combination of versions."""

    torch: str
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    core: str = "1.0.0b3"

    @property
    def folder(self) -> Path:
        """The place of the virtual environment."""
        return CACHE / f"torch-{self.torch}-python-{self.python}-core-{self.core}"

    @property
    def interpreter(self) -> Path:
        """The environment's Python."""
        return self.folder / "bin" / "python"

    def exists(self) -> bool:
        """Return whether the environment was built to the end."""
        return (self.folder / ".complete").exists()

    def fits(self) -> bool:
        """Return whether the disk has space for the environment."""
        CACHE.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(CACHE).free > NEEDED_BYTES

    def build(self) -> None:
        """Create the environment; one with CUDA libraries takes 6 GB and some minutes."""
        self.remove()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([_python(self.python), "-m", "venv", self.folder], check=True)
        self._install(f"torch=={self.torch}")
        self.update()
        self._install(f"torch=={self.torch}", "-e", str(ROOT))
        self._install("--no-deps", "timm")
        (self.folder / ".complete").touch()

    def update(self) -> None:
        """Install the libraries of the tests that are missing."""
        self._install(f"torch=={self.torch}", f"coreai-core=={self.core}", *TEST_LIBRARIES)

    def remove(self) -> None:
        """Delete the environment."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _install(self, *what: str) -> None:
        command = [self.interpreter, "-m", "pip", "install", "-q", *what]
        subprocess.run(command, check=True)


def is_installed(version: str) -> bool:
    """Return whether that Python runs; version managers put commands that fail on the path."""
    command = [f"python{version}", "-c", ""]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _python(version: str) -> str:
    if not is_installed(version):
        raise LookupError(f"python{version} is not installed")
    return f"python{version}"
