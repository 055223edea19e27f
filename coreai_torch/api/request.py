"""What to convert: the model, its example inputs and the names of its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..capture.export_errors import check_eager
from ..capture.prepare import Captured, Source, prepare
from ..converter import TorchConverter, capture_rules
from ..ports import Ports
from ..precision import check_names
from ..progress import Stages
from ..verification import Subject


@dataclass(frozen=True)
class Request:
    """What to capture, and its inputs, outputs and states."""

    source: Source
    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    dynamic_shapes: Any
    ports: Ports = field(default_factory=Ports)
    assume: bool = False

    def check_eager(self) -> None:
        """Raise if the model itself fails on its inputs."""
        given = self.args is not None or self.kwargs is not None
        if given and isinstance(self.source, torch.nn.Module):
            check_eager(self.source, self.args, self.kwargs)

    def capture(self, staging: TorchConverter, stage: Stages) -> Captured:
        """Return the decomposed program with the requested inputs and outputs."""
        captured = prepare(
            self.source,
            self.args,
            self.kwargs,
            self.dynamic_shapes,
            rules=capture_rules(staging),
            names=None if self.ports.changes_program else self.ports.names,
            stage=stage,
            randomness=self.ports.randomness,
            assume=self.assume,
        )
        return self.ports.apply(captured)

    def leaves(self, captured: Captured, given: Any = None) -> list[Any]:
        """Return the example inputs, or other inputs of the model, as the program takes them.

        `given` is a tuple of args or a dictionary, which may name positional arguments too.
        """
        model = captured.original or captured
        subject = Subject(model.program, model.plan, model.reference)
        if given is None:
            flat = subject.leaves(self.args, self.kwargs)
        elif isinstance(given, Mapping):
            names = [argument.name for argument in subject.arguments]
            named = set(given) == set(names)
            check_names(given, [*names, *(self.kwargs or {})])
            flat = [given[name] for name in names] if named else subject.leaves((), given)
        else:
            flat = subject.leaves(given if isinstance(given, tuple | list) else (given,), {})
        return self.ports.leaves(model, captured, flat)
