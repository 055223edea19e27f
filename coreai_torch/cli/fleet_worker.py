"""The program of a guard process, which `fleet.isolating` starts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..fleet import guard
from ..fleet.content import versions
from ..fleet.libraries import build
from ..fleet.plan import LIBRARIES
from ..fleet.steps import run_steps
from ..fleet.task import Task
from ..sandbox.channel import Channel

# What the first conversion of a process imports; together this takes several seconds.
_PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch._export",
    "torch.export._trace",
    "torch._functorch.aot_autograd",
    "coreai_torch.api",
    "coreai_torch.targets.lint",
    "coreai_torch.cli.model_source",
)


def work(data: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the steps of one task."""
    return dict(run_steps(data, load, report))


def load(task: Task) -> Any:
    """Load the model of a task, with the random weights of its seed."""
    import torch

    from . import model_source, weights

    library, _, name = task.source.partition(":")
    if library not in LIBRARIES or Path(name, "config.json").is_file():
        checkpoint = Path(task.checkpoint) if task.checkpoint else None
        return model_source.load(task.source, task.inputs, checkpoint=checkpoint, seed=task.seed)
    torch.manual_seed(task.seed)
    model, example = build(library, name, task.config)
    if task.checkpoint:
        weights.load_checkpoint(model, Path(task.checkpoint))
    if task.inputs or not example:
        return model_source.bind_inputs(model, task.inputs)
    return model_source.Loaded(model, (), example)


def serve(channel: Channel, folder: str, needs_torch: bool, preload: Sequence[str]) -> None:
    """Run the tasks that the channel brings; `folder` has the modules of the plan."""
    versions()  # cached before the fork
    sys.path.append(folder)
    guard.serve(channel, work, (*(_PRELOADED if needs_torch else ()), *preload))
