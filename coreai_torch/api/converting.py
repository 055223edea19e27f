"""`convert`: capture, convert, verify, optimize and save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from ..asset.metadata import check_metadata
from ..asset.program import Program, check_path, optimize_here
from ..capture.assuming import check_assume
from ..capture.io_plan import Names
from ..capture.prepare import Source
from ..converter import TorchConverter, check_converter
from ..errors import ArgumentTypeError, ConversionError
from ..ports import Ports
from ..precision import Precision, set_report
from ..progress import stages
from ..stopwatch import Stopwatch
from ..targets import Target
from ..verification import Mode, Settings, Verdict, check_mode, examine
from .capturing import EntryPoint, capture
from .options import Keywords, Options
from .request import Request
from .sizes import Sizes, variants

_SHORTEST, _LONGEST = 1.0, 5.0  # seconds for generated inputs in a quick comparison


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
    overwrite: bool = False,
    sizes: Sizes | None = None,
    ports: Ports | None = None,
    precision: Precision | str | None = None,
    target: Target | str | None = None,
    converter: TorchConverter | None = None,
    metadata: Mapping[str, Any] | None = None,
    assume: str | None = None,
    **keywords: Unpack[Keywords],
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
        sizes: shapes to make one entry point for, each: `[(1, 3, 224, 224), (1, 3, 448, 448)]` for
            a model with one input, `[{"x": (1, 16)}, {"x": (8, 16)}]` by input. They share weights.
            Their names are `main_1x3x224x224`, or the keys of a dictionary.
        ports: image inputs, other outputs and labels, and the names above.
        precision: "float16" or "bfloat16" to compute in half precision, or a `Precision`; the
            `precision_report` of the result lists what stays in float32. The program is compared
            with the half-precision model, whose own error the report has.
        target: "neural_engine", "gpu", "cpu", "any" or "linux", or a `Target`.
        converter: provides lowerings, kernels, decompositions and a mode; it is not changed.
        verify: run the program and torch on the same inputs, before and after `optimize()`, in a
            separate process; a `VerificationError` names the first wrong op, and nothing is saved.
            "quick", the default, lets torch run the program on generated inputs if the runtime is
            slow; "full" uses the runtime for all inputs; "accept-unjudged" is quick, and accepts
            outputs that cannot be judged, for which the others raise an `UnjudgedError`; False
            skips the comparison. The `verdict` of the result has the errors of all outputs.
        output: the `.aimodel` to write; an existing one is replaced when all else succeeded.
        overwrite: delete whatever is at `output`; without it, only an asset is replaced.
        metadata: entries of the asset: `author`, `license`, `model_description`, and any others.
        assume: "example" lets the values of the example decide branches and sizes that depend on
            values, if torch cannot export the model otherwise. The asset lists what was assumed;
            generated inputs for which it does not hold are skipped.
        keywords: the fields of `Ports`, `Precision` and `Target`, instead of these objects.
    """
    names = {"input_names": input_names, "output_names": output_names, "state_names": state_names}
    given_names = {name: value for name, value in names.items() if value is not None}
    options = Options.of(ports, precision, target, {**given_names, **keywords})
    mode, described = _verify_mode(verify), check_metadata(metadata)
    staging, assuming = _staging(converter, options.target), check_assume(assume)
    _check_output(output, overwrite)
    watch = Stopwatch()
    with stages() as stage:
        given = options.ports.model_inputs(model_or_exported, args, kwargs)
        request = Request(model_or_exported, *given, dynamic_shapes, options.ports, assuming)
        if mode is not None:  # a comparison with eager: a model that fails there fails early
            request.check_eager()
        chosen = variants(request, sizes)
        found = capture(chosen, staging, options.precision, externalize_modules, stage)
        for one in found:
            one.stage(staging)
        with stage("converting", ops=sum(one.nodes for one in found), live=False):
            result = staging.to_coreai()
        if result.regions is not None:
            stage.note(result.regions)
        result.metadata |= described
        options.ports.describe(found[0].captured, result)
        set_report(result, {one.name: one.report for one in found if one.report is not None})
        if mode is not None:
            seconds = None if mode is Mode.FULL else _generated(watch.seconds)
            with stage("verifying"):
                verdicts = [_verify(one, result, staging, mode, seconds) for one in found]
            result.verdict = verdicts[0]
        with stage("optimizing"):
            _optimize(result, tried=mode is not None)
        if output is not None:
            with stage("saving"):
                result.save_asset(output, overwrite=overwrite)
    return result


def _staging(converter: TorchConverter | None, target: Target) -> TorchConverter:
    """Return an empty converter for the target with the lowerings of the given one."""
    check_converter(converter)
    if converter is None:
        return TorchConverter(target=target)
    if converter.split_precision()[1] is not None:
        raise ConversionError(
            "the converter has a precision, which convert does not compare with the model\n"
            "  try   pass precision=... to convert"
        )
    return converter.empty().for_target(target)


def _optimize(program: Program, *, tried: bool) -> None:
    """Optimize a program; a comparison has tried it on a copy, in a child."""
    if tried:
        optimize_here(program)
    else:
        program.optimize()


def _check_output(output: Any, overwrite: bool) -> None:
    """Raise if the asset cannot be saved there, before the conversion, which may take long."""
    if output is not None and not isinstance(output, Path | str):
        raise ArgumentTypeError(f"output is {output!r}\n  try   pass the path of an .aimodel")
    if output is not None:
        check_path(Path(output), overwrite=overwrite)


def _verify_mode(verify: bool | str) -> Mode | None:
    """Return the mode of the comparison, or None to skip it."""
    if isinstance(verify, bool):
        return Mode.QUICK if verify else None
    return check_mode(verify)


def _generated(conversion: float) -> float:
    """Return the seconds for generated inputs in a quick comparison, from those before it.

    So it takes about as long as the conversion.
    """
    return min(_LONGEST, max(_SHORTEST, conversion / 2))


def _verify(
    entry: EntryPoint,
    converted: Program,
    staging: TorchConverter,
    mode: Mode,
    seconds: float | None,
) -> Verdict:
    """Compare an entry point with the model, without a second export."""
    subject, leaves, names = entry.subject(), entry.leaves(), entry.request.ports.names
    settings = Settings(
        entry.name,
        names != Names(),
        converter=staging,
        mode=mode,
        seconds=seconds,
        only_optimized=mode is not Mode.FULL,
    )
    verdict = examine(subject, converted, leaves, settings)
    if any(trial.problem for trial in verdict.failures):  # again, with the location of each op
        debug = staging.in_mode(TorchConverter.Mode.DEBUG).to_coreai()
        verdict = examine(subject, debug, leaves, settings)
    return verdict.raise_if_failed()
