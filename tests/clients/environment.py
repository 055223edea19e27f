"""Virtual environments with one client each, reused when they exist."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.environment import CACHE, ROOT

TORCH, CORE = "torch==2.13.0", "coreai-core==1.0.0b3"
# Our dependencies and pytest; `--no-deps` below must not leave one of them out.
BASE = (TORCH, CORE, "numpy", "rich>=13", "typer>=0.12", "expecttest", "pytest>=8", "setuptools")


@dataclass(frozen=True)
class Client:
    """A program from the registry, and how its flow is run."""

    name: str
    version: str
    tests: tuple[str, ...]  # arguments of pytest
    libraries: tuple[str, ...]  # its dependencies
    alone: tuple[str, ...] = ()  # installed without dependencies, which would replace torch
    own_tests: tuple[str, ...] = ()  # modules of its package, run by own_tests.py

    @property
    def folder(self) -> Path:
        """The place of the virtual environment."""
        return CACHE / f"client-{self.name}-{self.version}"

    @property
    def interpreter(self) -> Path:
        """The environment's Python."""
        return self.folder / "bin" / "python"

    def build(self) -> None:
        """Create the environment if it is missing, and install this checkout in it."""
        done = self.folder / ".complete"
        if not done.exists():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", self.folder], check=True)
            self._install(*BASE)
            self._install(TORCH, CORE, *self.libraries)
            self._install("--no-deps", f"{self.name}=={self.version}", *self.alone)
        # Its requirement of the published converter is an exact version: replace it as a user does.
        self._install("--no-deps", "--no-build-isolation", "-e", str(ROOT))
        done.touch()

    def _install(self, *what: str) -> None:
        subprocess.run([self.interpreter, "-m", "pip", "install", "-q", *what], check=True)


CLIENTS = (
    Client(
        "coreai-opt",
        "0.3.0",
        ("tests/clients/flows/test_client_coreai_opt.py", "tests/compression/test_coreai_opt.py"),
        (
            "ninja",
            "pydantic>=2",
            "pyyaml",
            "safetensors",
            "scikit-learn",
            "torchao==0.18.0",
            "tqdm",
        ),
    ),
    Client(
        "ultralytics",
        "8.4.190",
        ("tests/clients/flows/test_client_ultralytics.py",),
        ("matplotlib", "pillow", "psutil", "pyyaml", "requests"),
        ("opencv-python-headless==5.0.0.93", "torchvision==0.28.0", "ultralytics-thop==2.2.3"),
    ),
    Client(
        "executorch",
        "1.5.1",
        ("tests/clients/flows/test_client_executorch.py",),
        (
            *("flatbuffers", "hydra-core>=1.3", "hypothesis", "kgb", "mpmath==1.3.0", "omegaconf"),
            *("pandas>=2.2.2", "parameterized", "py-cpuinfo", "pyyaml", "requests"),
            *("ruamel.yaml", "scikit-learn", "tabulate", "torchao==0.18.0"),
            *("ninja", "pydantic>=2", "safetensors", "tqdm"),  # for the quantizer, coreai-opt
        ),
        ("coreai-opt==0.3.0", "pytorch-tokenizers"),
        tuple(
            f"executorch.backends.apple.coreai.{name}"
            for name in (
                "passes.test.test_narrow_dtypes",
                "passes.test.test_replace_copy_ops",
                "test.test_io_compat",
                "test.test_partitioner",
                "test.test_preprocess",
                "test.test_quantizer",
                "test.test_recipes",
                "test.test_shape_config",
            )
        ),
    ),
)
