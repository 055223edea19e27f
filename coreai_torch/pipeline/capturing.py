"""Capture a source with the arguments of `convert`, without converting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..capture.io_plan import Names
from ..capture.prepare import Captured, Source
from ..converter import TorchConverter
from ..ports import PortRequest
from ..progress import Stages
from .half import Half
from .request import Request


def capture_source(
    source: Source,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    staging: TorchConverter,
    stage: Stages,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
    precision: str | None = None,
    keep: str | Sequence[str] = "auto",
    calibration: Any = None,
    half_ports: bool = False,
    outputs: Sequence[str] | None = None,
    images: Any = None,
    bool_ports: str = "bool",
    labels: Any = None,
    metadata: Any = None,
) -> tuple[Captured, PortRequest, list[Any]]:
    """Return the captured program, the changes at its border and its example inputs."""
    half = Half.of(precision, keep, calibration, half_ports)
    ports = PortRequest.of(images, outputs, bool_ports, labels, metadata)
    names = Names(input_names, output_names, state_names)
    given = ports.model_inputs(source, args, kwargs)
    request = Request(source, *given, dynamic_shapes, names, ports)
    captured = request.capture(staging, stage)
    if half is not None:
        with stage("measuring half precision"):
            ((captured, _),) = half.apply([(captured, request)])
    leaves = request.leaves(captured)
    if half_ports:
        leaves = list((captured.program.example_inputs or (leaves,))[0])
    return captured, ports, leaves
