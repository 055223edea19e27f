"""What to convert: the model, its example inputs and the names of its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..capture.export_errors import check_eager
from ..capture.io_plan import Names
from ..capture.prepare import Captured, Source, prepare
from ..converter import TorchConverter, capture_rules
from ..progress import Stages


@dataclass(frozen=True)
class Request:
    """What to capture, and the names of its inputs, outputs and states."""

    source: Source
    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    dynamic_shapes: Any
    names: Names

    def check_eager(self) -> None:
        """Raise if the model itself fails on its inputs."""
        given = self.args is not None or self.kwargs is not None
        if given and isinstance(self.source, torch.nn.Module):
            check_eager(self.source, self.args, self.kwargs)

    def capture(self, staging: TorchConverter, stage: Stages) -> Captured:
        return prepare(
            self.source,
            self.args,
            self.kwargs,
            self.dynamic_shapes,
            rules=capture_rules(staging),
            names=self.names,
            stage=stage,
        )
