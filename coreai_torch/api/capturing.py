"""Capture the entry points of a conversion, in half precision if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..capture.prepare import Captured
from ..converter import TorchConverter, stage_program
from ..errors import ConversionError
from ..passes.externalize.mark import marked
from ..passes.externalize.spec import Externalized, as_specs, matches
from ..precision import Precision, PrecisionReport
from ..progress import Stages
from ..verification import Subject
from .half import in_half
from .request import Request
from .sizes import Variant


@dataclass(frozen=True)
class EntryPoint:
    """An entry point that was captured, and the calls in it that stay separate graphs."""

    name: str
    request: Request
    captured: Captured
    externalized: Sequence[Externalized] = ()
    report: PrecisionReport | None = None
    half_ports: bool = False

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the captured graph."""
        return len(self.captured.program.graph.nodes)

    def subject(self) -> Subject:
        """Return what the converted program is compared with."""
        return Subject(self.captured.program, self.captured.plan, self.captured.reference)

    def leaves(self) -> list[Any]:
        """Return the example inputs in the dtypes of the captured program."""
        if self.half_ports:
            return self.subject().leaves(None, None)
        return self.request.leaves(self.captured)

    def stage(self, converter: TorchConverter) -> None:
        """Stage the program in a converter."""
        names = self.request.ports.names
        stage_program(converter, self.captured.program, names, self.name, self.externalized)


def capture(
    variants: Sequence[Variant],
    staging: TorchConverter,
    precision: Precision | None,
    externalize: Sequence[Any] | None,
    stage: Stages,
) -> list[EntryPoint]:
    """Capture all entry points, and measure them together for half precision."""
    found = [_captured(variant, staging, externalize, stage) for variant in variants]
    if precision is None:
        return found
    with stage("measuring half precision"):
        made = in_half([(one.captured, one.request) for one in found], precision)
    return [
        replace(one, captured=captured, report=report, half_ports=precision.half_ports)
        for one, (captured, report) in zip(found, made, strict=True)
    ]


def _captured(
    variant: Variant, staging: TorchConverter, externalize: Sequence[Any] | None, stage: Stages
) -> EntryPoint:
    request = variant.request
    if externalize and not isinstance(request.source, torch.nn.Module):
        raise ConversionError(
            "externalize_modules needs the model itself: an exported program has no modules\n"
            "  try   call convert(model, args, externalize_modules=[...])"
        )
    found = list(matches(request.source, as_specs(externalize))) if externalize else []
    with marked(found):
        captured = request.capture(staging, stage)
    return EntryPoint(variant.entrypoint, request, captured, found)
