"""A task: one model at one point of the grid, and the steps to run on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STEPS = ("compress", "export", "convert", "verify", "lint", "bench")  # in the order they run


@dataclass(frozen=True)
class Limits:
    """What one task may use."""

    seconds: float = 900.0
    memory: float = 4.0  # GB, of the child process and its descendants


@dataclass(frozen=True)
class Task:
    """The work of one child process; `id` names it in all runs of the plan."""

    id: str
    model: str
    source: str
    steps: Mapping[str, Mapping[str, Any]]  # options by step
    inputs: tuple[str, ...] = ()
    checkpoint: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)  # of a library's configuration
    sizes: Mapping[str, int] = field(default_factory=dict)
    precision: str = "float32"
    scheme: str = "none"
    target: str = "none"
    environment: str = "none"  # name of the Python environment that runs the task
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    folder: str = ""  # relative paths and imports start here
    preload: tuple[str, ...] = ()  # modules that the parent of the child process imports
    python: str = ""  # interpreter of the environment; by default that of the worker
    call: str = ""  # package.module:function that replaces the steps
    key: str = ""  # content hash of everything that the result depends on
    code: str = ""  # digest of this package, which the worker must have too
    keep: str = ""  # folder for the assets

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, from which `from_dict` restores the task."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """Restore a task."""
        sequences = {name: tuple(data[name]) for name in ("inputs", "preload")}
        return cls(**{**data, **sequences, "limits": Limits(**data["limits"])})


def task_id(model: str, sizes: Mapping[str, int], precision: str, *named: str, seed: int) -> str:
    """Return the id; values that equal the default are left out, so that a grid can grow."""
    parts = [f"{name}={value}" for name, value in sorted(sizes.items())]
    parts += [precision] if precision != "float32" else []
    parts += [name for name in named if name != "none"]
    parts += [f"seed={seed}"] if seed else []
    return f"{model}[{','.join(parts)}]" if parts else model
