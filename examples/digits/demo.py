"""Convert the trained digit classifier and run it on held-out images.

Exit with code 1 if Core AI predicts another digit than torch for any image, or if a logit differs
by more than `TOLERANCE`.
"""

import asyncio
import atexit
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from coreai.authoring import AIModelAsset, AIProgram
from coreai.runtime import NDArray
from model import WEIGHTS, Digits, held_out, trained
from rich.console import Console
from rich.table import Table
from torch import Tensor

from coreai_torch import TorchConverter, get_decomp_table

TOLERANCE = 1e-4

# torch.export warns about a deprecated call inside torch.
warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)

BATCH = 64  # 450 images are seven full batches and one of 2: the batch size is dynamic


@dataclass
class Report:
    """Results of the demo."""

    labels: Tensor
    by_torch: Tensor
    by_coreai: Tensor
    asset_bytes: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def largest_difference(self) -> float:
        return (self.by_torch - self.by_coreai).abs().max().item()

    @property
    def other_predictions(self) -> int:
        return int((self.by_torch.argmax(1) != self.by_coreai.argmax(1)).sum())

    @property
    def holds(self) -> bool:
        # Comparisons with NaN are false, so test the condition that must be true.
        return self.other_predictions == 0 and self.largest_difference <= TOLERANCE

    def accuracy(self, logits: Tensor) -> float:
        return (logits.argmax(1) == self.labels).float().mean().item()


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start


def convert(model: Digits, seconds: dict[str, float]) -> AIProgram:
    example = (torch.zeros(2, 1, 8, 8),)
    batch = torch.export.Dim("batch", min=1, max=4096)
    with timed(seconds, "export"):
        exported = torch.export.export(model, example, dynamic_shapes=({0: batch},))
        exported = exported.run_decompositions(get_decomp_table())
    with timed(seconds, "convert"):
        program = (
            TorchConverter()
            .add_exported_program(exported, input_names=["images"], output_names=["logits"])
            .to_coreai()
        )
    with timed(seconds, "optimize"):
        program.optimize()
    return program


async def predict(asset: AIModelAsset, images: Tensor, seconds: dict[str, float]) -> Tensor:
    logits = []
    start = time.perf_counter()
    async with asset.executable() as model:
        function = model.load_function("main")
        seconds["load"] = time.perf_counter() - start
        with timed(seconds, "run"):
            for batch in images.split(BATCH):
                outputs = await function({"images": NDArray(batch)})
                logits.append(outputs["logits"].numpy())
    return torch.from_numpy(np.concatenate(logits))


def measure(directory: Path) -> Report:
    seconds: dict[str, float] = {}
    model = trained()
    images, labels = held_out()
    with torch.no_grad(), timed(seconds, "torch"):
        by_torch = torch.cat([model(batch) for batch in images.split(BATCH)])
    program = convert(model, seconds)
    with timed(seconds, "save"):
        asset = program.save_asset(directory / "digits.aimodel")
    by_coreai = asyncio.run(predict(asset, images, seconds))
    size = sum(file.stat().st_size for file in asset.path.rglob("*") if file.is_file())
    return Report(labels, by_torch, by_coreai, size, seconds)


def show(report: Report) -> None:
    table = Table(title=f"{len(report.labels)} held-out digits")
    table.add_column()
    table.add_column("torch", justify="right")
    table.add_column("Core AI", justify="right")
    table.add_row(
        "accuracy",
        f"{report.accuracy(report.by_torch):.2%}",
        f"{report.accuracy(report.by_coreai):.2%}",
    )
    table.add_row(
        "size on disk",
        f"{WEIGHTS.stat().st_size / 1024:.1f} KiB",
        f"{report.asset_bytes / 1024:.1f} KiB",
    )
    seconds = report.seconds
    table.add_row("all images", f"{seconds['torch']:.3f} s", f"{seconds['run']:.3f} s")
    for step in ("export", "convert", "optimize", "save", "load"):
        table.add_row(step, "", f"{seconds[step]:.3f} s")
    console = Console()
    console.print(table)
    console.print(
        f"{report.other_predictions} predictions differ; "
        f"largest difference of a logit {report.largest_difference:.2e} (bound {TOLERANCE:.0e})"
    )


def main() -> int:
    # A runtime thread can abort the process if the interpreter exits right after a call.
    atexit.register(time.sleep, 0.1)
    with tempfile.TemporaryDirectory() as directory:
        report = measure(Path(directory))
    show(report)
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
