"""Export a model that branches on values, with what the values of the example decide.

`torch.export.draft_export` runs the model on the example and records each number that the code
reads. The exported program is right for inputs for which these are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ArgumentTypeError, ExportError
from ..torch_compat import draft_export, interned_files, pytree
from .dynamic_rnn import keep_rnn_lengths_dynamic
from .export_errors import PACKAGE, TORCH
from .export_rewrites import rewrite_for_export
from .torch_output import quiet_torch
from .wrapper import Wrapper

EXAMPLE = "example"
_OTHERS = (PACKAGE, TORCH)  # files that are not the user's
_CLOSE = 1e-3  # results of the same branch differ by rounding errors, others by more


@dataclass(frozen=True)
class Assumption:
    """What was read from the example: a condition or a number, and the line that reads it."""

    condition: str
    line: str

    def __str__(self) -> str:
        return f"{self.condition}, at {self.line}"


def check_assume(given: Any) -> bool:
    """Return whether values of the example may decide branches and sizes; raise for others."""
    if given not in (None, EXAMPLE):
        raise ArgumentTypeError(
            f"assume is {given!r}\n  try   pass 'example', with which the values of the example "
            "inputs decide branches and sizes that depend on values"
        )
    return given is not None


def export_assuming(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[torch.export.ExportedProgram, tuple[Assumption, ...]]:
    """Export a model with the values of the example."""

    def run() -> torch.export.ExportedProgram:
        given = (model, tuple(args), dict(kwargs))
        return draft_export(*given, dynamic_shapes=dynamic_shapes)

    with quiet_torch(), keep_rnn_lengths_dynamic():
        try:
            program = run()  # the stacks of the report end at a function that is replaced
        except Exception:
            with rewrite_for_export():
                program = run()
    report = program._report
    failures = [one for one in report.failures if not one.xfail]
    for failure in failures:
        if failure.failure_type.name not in ("DATA_DEPENDENT_ERROR", "GUARD_ADDED"):
            raise ExportError(
                f"torch.export needs a fake kernel of {failure.data.get('op')}, which the example "
                "cannot replace\n  try   register one with torch.library.register_fake"
            )
    return program, tuple(dict.fromkeys(_assumption(failure.data) for failure in failures))


def _assumption(data: Mapping[str, Any]) -> Assumption:
    line, files = "an unknown line", interned_files()
    for stack in (data.get("user_stack") or (), data.get("stack") or ()):
        frames = [(files.get(frame["filename"], "<"), frame) for frame in stack]
        own = [(file, frame) for file, frame in frames if not file.startswith((*_OTHERS, "<"))]
        if own and line == "an unknown line":
            file, frame = own[-1]
            line = f'File "{file}", line {frame["line"]}, in {frame["name"]}: {frame["loc"]}'
    return Assumption(f"{data.get('expr')} is {data.get('result')}", line)


class Assuming(Wrapper):
    """The model, which rejects inputs for which an assumption does not hold."""

    def __init__(self, model: torch.nn.Module, program: torch.export.ExportedProgram) -> None:
        super().__init__(model)
        self._program = [program.module()]  # not a submodule: its weights are those of the model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model and its graph, and raise if they differ."""
        copied = pytree.tree_map(_copy, (args, kwargs))
        result = self.wrapped(*args, **kwargs)
        try:
            assumed = self._program[0](*copied[0], **copied[1])
        except Exception as cause:
            raise RuntimeError(f"an assumption does not hold: {cause}") from cause
        if not _agree(result, assumed):
            raise RuntimeError("an assumption does not hold: the graph gives other results")
        return result


def _copy(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _agree(result: Any, assumed: Any) -> bool:
    one, other = (list(pytree.tree_leaves(r)) for r in (result, assumed))
    return len(one) == len(other) and all(map(_close, one, other))


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point() and not one.is_complex():
        return bool(one.equal(other))
    scale = one.abs().nan_to_num(0, 0, 0).max() if one.numel() else 0
    return bool(torch.allclose(one, other, rtol=_CLOSE, atol=_CLOSE * float(scale), equal_nan=True))
