"""`convert`: turn a model or an exported program into a verified, saved Core AI program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .asset.program import Program, check_path
from .capture.export_errors import check_eager
from .capture.io_plan import Names
from .capture.prepare import Captured, Source, prepare
from .converter import TorchConverter, capture_rules, check_converter
from .errors import ArgumentTypeError, ConversionError
from .progress import Stages, stages
from .verification import Mode, Settings, Subject, check_mode, examine


def convert(
    model_or_exported: Source,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
    externalize_modules: Sequence[Any] | None = None,
    verify: bool | str = True,
    output: Path | str | None = None,
    converter: TorchConverter | None = None,
) -> Program:
    """Export, decompose, convert, compare with torch, optimize and save.

    ```python
    import torch

    import coreai_torch

    model, x = torch.nn.Linear(8, 4).eval(), torch.randn(2, 8)
    program = coreai_torch.convert(model, (x,), output_names=["y"], output="linear.aimodel")
    ```

    Args:
        model_or_exported: a model, or an `ExportedProgram`, decomposed or not.
        args: positional example inputs to export the model with; an exported program has its own.
        kwargs: example inputs by name.
        dynamic_shapes: dynamic sizes, as for `torch.export.export`.
        input_names: one name for each argument that `forward` only reads, in order.
        output_names: one name for each value that it returns.
        state_names: one name for each buffer, then each argument, that it writes in place.
        externalize_modules: `ExternalizeSpec`s, or classes, whose instances stay separate graphs.
        verify: run the program and torch on the same inputs, before and after `optimize()`, in a
            separate process; a `VerificationError` names the first wrong op, and nothing is saved.
            "quick", the default, lets torch run the program on generated inputs if the runtime is
            slow; "full" uses the runtime for all inputs; False skips the comparison.
        output: the `.aimodel` to write; an existing one is replaced when all else succeeded.
        converter: provides lowerings, kernels, decompositions and a mode; it is not changed.
    """
    names = Names(input_names, output_names, state_names)
    check_converter(converter)
    mode = _verify_mode(verify)
    if output is not None and not isinstance(output, Path | str):
        raise ArgumentTypeError(f"output is {output!r}\n  try   pass the path of an .aimodel")
    if output is not None:
        check_path(Path(output))  # before the conversion, which may take long
    staging = TorchConverter() if converter is None else converter.empty()
    with stages() as stage:
        request = _Request(model_or_exported, args, kwargs, dynamic_shapes, names)
        if mode is not None:  # a comparison with eager: a model that fails there fails early
            request.check_eager()
        captured = _stage_source(staging, request, externalize_modules, stage)
        with stage("converting", ops=len(captured.program.graph.nodes), live=False):
            result = staging.to_coreai()
        if mode is not None:
            with stage("verifying"):
                _verify(captured, result, staging, request, mode)
        with stage("optimizing"):
            result.optimize()
        if output is not None:
            with stage("saving"):
                result.save_asset(output)
    return result


def _verify_mode(verify: bool | str) -> Mode | None:
    """Return the mode of the comparison, or None to skip it."""
    if isinstance(verify, bool):
        return Mode.QUICK if verify else None
    return check_mode(verify)


@dataclass(frozen=True)
class _Request:
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


def _stage_source(
    staging: TorchConverter, request: _Request, externalize: Sequence[Any] | None, stage: Stages
) -> Captured:
    """Capture the source and stage its program."""
    names = (request.names.inputs, request.names.outputs, request.names.states)
    if not isinstance(request.source, torch.nn.Module):
        if externalize:
            raise ConversionError(
                "externalize_modules needs the model itself: an exported program has no modules\n"
                "  try   call convert(model, args, externalize_modules=[...])"
            )
        captured = request.capture(staging, stage)
        staging.add_exported_program(captured.program, *names)
        return captured
    captures: list[Captured] = []

    def export(module: torch.nn.Module) -> torch.export.ExportedProgram:
        captures.append(request.capture(staging, stage))
        return captures[-1].program

    staging.add_pytorch_module(request.source, export, externalize, *names)
    return captures[-1]


def _verify(
    captured: Captured,
    converted: Program,
    staging: TorchConverter,
    request: _Request,
    mode: Mode,
) -> None:
    """Compare the result with the model, without a second export."""
    subject = Subject(captured.program, captured.plan, captured.reference)
    leaves = subject.leaves(request.args, request.kwargs)
    settings = Settings(named=request.names != Names(), converter=staging, mode=mode)
    verdict = examine(subject, converted, leaves, settings)
    if any(trial.problem for trial in verdict.failures):  # again, with the location of each op
        debug = staging.in_mode(TorchConverter.Mode.DEBUG).to_coreai()
        verdict = examine(subject, debug, leaves, settings)
    verdict.raise_if_failed()
