"""One virtual environment per peer, created on first use."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = Path(os.environ.get("COREAI_TORCH_BENCH_HOME", ROOT / ".bench"))
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Environment:
    """Packages of a peer besides torch; those in `alone` are installed without dependencies.

    Their dependencies would install another torch.
    """

    name: str
    packages: tuple[str, ...] = ()
    alone: tuple[str, ...] = field(default=())

    @property
    def python(self):
        return HOME / self.name / "bin" / "python"

    def make(self):
        """Install once; return the error, or None."""
        done = HOME / self.name / ".done"
        if done.exists():
            return None
        HOME.mkdir(parents=True, exist_ok=True)
        pip = [self.python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
        steps = [
            [sys.executable, "-m", "venv", HOME / self.name],
            [*pip, TORCH, "numpy", "transformers"],
            [*pip, *self.packages] if self.packages else None,
            [*pip, "--no-deps", *self.alone] if self.alone else None,
        ]
        for step in filter(None, steps):
            result = subprocess.run(step, capture_output=True, text=True, timeout=1800)
            if result.returncode:
                return result.stderr.strip().splitlines()[-1]
        done.touch()
        return None


class _Own(Environment):
    """The current environment, with the package under test."""

    @property
    def python(self):
        return Path(sys.executable)

    def make(self):
        return None


OWN = _Own("own")
PUBLISHED = Environment("published", ("coreai-torch==0.4.3",))
PEERS = {
    "ours": OWN,
    "memory": OWN,
    "ours_debug": OWN,
    "native_save": OWN,
    "published": PUBLISHED,
    "onnx": Environment("onnx", ("onnx", "onnxscript")),
    "coremltools": Environment("coremltools", ("coremltools",)),
    "openvino": Environment("openvino", ("openvino",)),
    "executorch": Environment(
        "executorch",
        ("flatbuffers", "ruamel.yaml", "tabulate", "pyyaml", "expecttest", "mpmath", "pandas"),
        alone=("executorch", "torchao"),
    ),
}
