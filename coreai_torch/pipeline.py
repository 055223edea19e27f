"""`convert`: a model or an exported program to a checked, saved Core AI program, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from .asset.program import Program, check_path
from .capture.exporting import check_fixed, decomposed, exported
from .capture.io_plan import Names, plan
from .converter import TorchConverter, check_converter, get_decomp_table
from .errors import ArgumentTypeError, ConversionError, NotDecomposedError
from .progress import Stages, stages
from .verification import Settings, Subject, examine

Given: TypeAlias = "Sequence[str] | None"
Source: TypeAlias = "torch.nn.Module | torch.export.ExportedProgram"


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
    verify: bool = True,
    output: Path | str | None = None,
    converter: TorchConverter | None = None,
) -> Program:
    """Export, decompose, convert, optimize, hold to torch's numbers, and save.

    ```python
    import torch

    import coreai_torch

    model, x = torch.nn.Linear(8, 4).eval(), torch.randn(2, 8)
    program = coreai_torch.convert(model, (x,), output_names=["y"], output="linear.aimodel")
    ```

    Args:
        model_or_exported: a model, or an `ExportedProgram`, decomposed or not.
        args: inputs to export the model with, by place; an exported program brings its own.
        kwargs: the same by name.
        dynamic_shapes: sizes that may vary, as for `torch.export.export`.
        input_names: one for each argument that `forward` only reads, in order.
        output_names: one for each value that it returns.
        state_names: one for each buffer, then each argument, that it writes in place.
        externalize_modules: `ExternalizeSpec`s, or classes, whose instances stay whole.
        verify: run the program beside torch, before and after `optimize()`, in a process of its
            own; a `VerificationError` names the first op that is wrong, and nothing is saved.
        output: the `.aimodel` to write; what is there already is replaced at the very end.
        converter: brings lowerings, kernels and a mode of your own; nothing is staged in it.
    """
    names = Names(input_names, output_names, state_names)
    check_converter(converter)
    if output is not None and not isinstance(output, Path | str):
        raise ArgumentTypeError(f"output is {output!r}\n  try   the path of an .aimodel")
    if output is not None:
        check_path(Path(output))  # before an hour is spent, not after
    staging = TorchConverter() if converter is None else converter.empty()
    with stages() as stage:
        how = (args, kwargs, dynamic_shapes)
        program = _staged(staging, model_or_exported, how, externalize_modules, names, stage)
        with stage("converting", ops=len(program.graph.nodes), live=False):
            result = staging.to_coreai()
        if verify:
            with stage("verifying"):
                _verified(model_or_exported, program, result, staging, how, names)
        with stage("optimizing"):
            result.optimize()
        if output is not None:
            with stage("saving"):
                result.save_asset(output)
    return result


def _verified(
    source: Source,
    program: torch.export.ExportedProgram,
    converted: Program,
    staging: TorchConverter,
    how: tuple[Any, Any, Any],
    names: Names,
) -> None:
    """Hold the result to the model, which need not be exported a second time for that."""
    reference = source if isinstance(source, torch.nn.Module) else source.module()
    subject = Subject(program, plan(program, names), reference)
    given = subject.leaves(how[0], how[1])
    settings = Settings(named=names != Names(), converter=staging)
    verdict = examine(subject, converted, given, settings)
    if any(trial.problem for trial in verdict.failures):  # now with the places of the ops
        debug = staging.in_mode(TorchConverter.Mode.DEBUG).to_coreai()
        verdict = examine(subject, debug, given, settings)
    verdict.raise_if_failed()


def _staged(
    staging: TorchConverter,
    source: Source,
    how: tuple[Any, Any, Any],
    externalize: Sequence[Any] | None,
    names: Names,
    stage: Stages,
) -> torch.export.ExportedProgram:
    """Stage the program; gives the one that was staged."""
    held: list[torch.export.ExportedProgram] = []

    def export(module: torch.nn.Module) -> torch.export.ExportedProgram:
        with stage("exporting"):
            program = exported(module, *how)
        with stage("decomposing", ops=len(program.graph.nodes)):
            held.append(decomposed(program, get_decomp_table()))
        return held[-1]

    if isinstance(source, torch.nn.Module):
        staging.add_pytorch_module(source, export, externalize, *_listed(names))
        return held[-1]
    if externalize:
        raise ConversionError(
            "externalize_modules needs the model itself: an exported program has no modules\n"
            "  try   convert(model, args, externalize_modules=[...])"
        )
    if not isinstance(source, torch.export.ExportedProgram):
        raise ConversionError(
            f"convert takes an nn.Module or an ExportedProgram, not a {type(source).__name__}\n"
            "  try   convert(model, (x,))"
        )
    check_fixed(how[2])
    return _added(staging, source, names, stage)


def _added(
    staging: TorchConverter,
    program: torch.export.ExportedProgram,
    names: Names,
    stage: Stages,
) -> torch.export.ExportedProgram:
    """A program that was decomposed already, with whatever table, is taken as it is if it can."""
    try:
        staging.add_exported_program(program, *_listed(names))
    except NotDecomposedError:
        with stage("decomposing", ops=len(program.graph.nodes)):
            program = decomposed(program, get_decomp_table())
        staging.add_exported_program(program, *_listed(names))
    return program


def _listed(names: Names) -> tuple[Given, Given, Given]:
    return names.inputs, names.outputs, names.states
