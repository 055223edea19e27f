"""The steps of `convert`: capture, convert, verify, optimize, save."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..asset.program import Program, check_path, optimize_here
from ..capture.io_plan import Names
from ..capture.prepare import Source
from ..converter import TorchConverter, check_converter
from ..errors import ArgumentTypeError, ConversionError
from ..ports import ImageInput, PortRequest
from ..progress import stages
from ..verification import Mode, Settings, Subject, Verdict, check_mode, examine
from .half import Half
from .request import Request
from .sizes import Sizes, variants
from .staging import Staged, stage_half, stage_source


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
    precision: str | None = None,
    keep: str | Sequence[str] = "auto",
    calibration: Iterable[Any] | None = None,
    half_ports: bool = False,
    outputs: Sequence[str] | None = None,
    images: Mapping[str, ImageInput] | None = None,
    bool_ports: str = "bool",
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    metadata: Mapping[str, Any] | None = None,
    target: str | None = None,
    safe: bool = True,
    skip_rewrites: Collection[str] = (),
    sizes: Sizes | None = None,
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
            slow; "full" uses the runtime for all inputs; False skips the comparison. The `verdict`
            of the result has the errors of all outputs.
        output: the `.aimodel` to write; an existing one is replaced when all else succeeded.
        converter: provides lowerings, kernels, decompositions and a mode; it is not changed.
        precision: "float16" or "bfloat16" to compute in half precision; the `precision_report` of
            the result lists what stays in float32. The program is compared with the half-precision
            model, whose own error the report has.
        keep: "auto" finds what must stay in float32 by measuring; or patterns of module paths, ops
            and FX nodes, as ["encoder.norm*", "aten.exp"].
        calibration: inputs to measure with, each a tuple of args or a dict of kwargs; without it
            the example inputs are used, with a warning.
        half_ports: whether float32 inputs and outputs become half precision too.
        outputs: names of FX nodes, or paths of modules, whose values the program returns instead
            of those of the model; what they do not depend on is removed, inputs too.
        images: inputs that take uint8 pixels, by name; each `ImageInput` has the preprocessing.
        bool_ports: the dtype of bool inputs and outputs, such as "int8", because devices reject
            bool inputs; the `port_notes` of the result name each port whose dtype changed.
        labels: the class labels of an output, or of each output by name.
        metadata: entries of the asset: `author`, `license`, `model_description`, and any others.
        target: "neural_engine", "gpu", "cpu" or "any": rewrite what is reported to fail there;
            the `rewrites` of the result list the places.
        safe: False applies no rewrites.
        skip_rewrites: ids of rewrites to leave out, as ["HAZ11"].
        sizes: shapes to make one entry point for, each: `[(1, 3, 224, 224), (1, 3, 448, 448)]` for
            a model with one input, `[{"x": (1, 16)}, {"x": (8, 16)}]` by input. They share weights.
            Their names are `main_1x3x224x224`, or the keys of a dictionary.
    """
    names = Names(input_names, output_names, state_names)
    check_converter(converter)
    mode = _verify_mode(verify)
    half = Half.of(precision, keep, calibration, half_ports)
    if converter is not None and converter.split_precision()[1] is not None:
        raise ConversionError(
            "the converter has a precision, which convert does not compare with the model\n"
            "  try   pass precision=... to convert"
        )
    _check_output(output)
    staging = TorchConverter() if converter is None else converter.empty()
    if target is not None:
        staging = staging.for_target(target, safe=safe, skip_rewrites=skip_rewrites)
    with stages() as stage:
        ports = PortRequest.of(images, outputs, bool_ports, labels, metadata)
        given = ports.model_inputs(model_or_exported, args, kwargs)
        request = Request(model_or_exported, *given, dynamic_shapes, names, ports)
        if mode is not None:  # a comparison with eager: a model that fails there fails early
            request.check_eager()
        chosen = variants(request, sizes)
        if half is None:
            staged = [stage_source(staging, one, externalize_modules, stage) for one in chosen]
        else:
            staged = stage_half(staging, chosen, externalize_modules, half, stage)
        count = sum(len(one.captured.program.graph.nodes) for one in staged)
        with stage("converting", ops=count, live=False):
            result = staging.to_coreai()
        ports.describe(staged[0].captured, result)
        reports = [one.report for one in staged if one.report is not None]
        if reports:
            result.precision_report = reports[0] if len(reports) == 1 else reports
        if mode is not None:
            with stage("verifying"):
                verdicts = [_verify(one, result, staging, mode, half) for one in staged]
            result.verdict = verdicts[0]
        with stage("optimizing"):
            _optimize(result, tried=mode is not None)
        if output is not None:
            with stage("saving"):
                result.save_asset(output)
    return result


def _optimize(program: Program, *, tried: bool) -> None:
    """Optimize a program; a comparison has tried it on a copy, in a child."""
    if tried:
        optimize_here(program)
    else:
        program.optimize()


def _check_output(output: Any) -> None:
    """Raise if the asset cannot be saved there, before the conversion, which may take long."""
    if output is not None and not isinstance(output, Path | str):
        raise ArgumentTypeError(f"output is {output!r}\n  try   pass the path of an .aimodel")
    if output is not None:
        check_path(Path(output))


def _verify_mode(verify: bool | str) -> Mode | None:
    """Return the mode of the comparison, or None to skip it."""
    if isinstance(verify, bool):
        return Mode.QUICK if verify else None
    return check_mode(verify)


def _verify(
    staged: Staged,
    converted: Program,
    staging: TorchConverter,
    mode: Mode,
    half: Half | None,
) -> Verdict:
    """Compare the result with the model, without a second export."""
    captured, request = staged.captured, staged.variant.request
    subject = Subject(captured.program, captured.plan, captured.reference)
    has_half_ports = half is not None and half.half_ports
    leaves = subject.leaves(None, None) if has_half_ports else request.leaves(captured)
    named = request.names != Names()
    settings = Settings(staged.variant.entrypoint, named, converter=staging, mode=mode)
    verdict = examine(subject, converted, leaves, settings)
    if any(trial.problem for trial in verdict.failures):  # again, with the location of each op
        debug = staging.in_mode(TorchConverter.Mode.DEBUG).to_coreai()
        verdict = examine(subject, debug, leaves, settings)
    return verdict.raise_if_failed()
