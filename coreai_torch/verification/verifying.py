"""`verify`: compare the results of a converted program with those of the model."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import torch
from coreai.authoring import AIModelAsset, AIProgram

from ..asset import reading, resources
from ..asset.changed_constants import ChangedConstant
from ..asset.mlir_module import write_module
from ..capture.io_plan import Names, plan
from ..capture.prepare import Captured, prepare
from ..converter import TorchConverter, capture_rules, check_converter
from ..errors import ArgumentTypeError, ConversionError, NativeError, VerificationInputError
from ..lowering.registry import BUILTIN
from ..ports import Ports, recorded_assume, recorded_images, recorded_randomness
from ..stopwatch import Stopwatch
from .changed_weights import changed_weights
from .compressed_weights import Explanation, stores_compressed_weights
from .draws import TrialPlan, draws
from .engines import RunByTorch, by_predicted_time, check_device, chosen, kernels, start
from .extremes import inexact_ops
from .input_rules import chosen as chosen_rules
from .isolation import ProgramFile
from .limits import ErrorLimits
from .locate import Search
from .predicted_time import slow_ops
from .reference import on_device
from .runner import Engine, Runner
from .subject import Leaves, Subject
from .trials import Trials
from .undefined_results import undefined_ops
from .verdict import Divergence, Verdict


class Mode(StrEnum):
    """How much is verified.

    Both run the given inputs on the runtime, before and after `optimize()`; `convert` runs those of
    `quick` on the program that it returns, after `optimize()`. `quick` runs generated inputs there
    only if calls are fast, and in torch otherwise, for at most 5 seconds.
    `accept-unjudged` is `quick`, but accepts outputs that rounding errors may decide altogether.
    """

    QUICK = "quick"
    FULL = "full"
    ACCEPT_UNJUDGED = "accept-unjudged"


_SECONDS = {
    Mode.QUICK: 5.0,
    Mode.FULL: 60.0,
    Mode.ACCEPT_UNJUDGED: 5.0,
}  # limits of the time for generated inputs
_LARGE = 1 << 30  # bytes from which on a program is not loaded twice at a time

ProgramLike: TypeAlias = "AIProgram | AIModelAsset | Path | str"


@dataclass(frozen=True)
class Settings:
    """Options of a comparison; the docstring of `verify` explains them."""

    entrypoint: str = "main"
    named: bool = False  # the caller gave names, and the program must have them
    converter: TorchConverter | None = None
    trials: TrialPlan = field(default_factory=TrialPlan)
    tolerance: float | None = None
    mode: Mode = Mode.FULL
    seconds: float | None = None  # the limit of the mode
    timeout: float = 600.0
    locate: bool = True
    engine: Engine = Engine.AUTO
    device: str = "cpu"
    only_optimized: bool = False  # the program is not used before `optimize()`

    @property
    def time_limit(self) -> float:
        """The seconds after which no further generated inputs are tried."""
        return _SECONDS[self.mode] if self.seconds is None else self.seconds


def verify(
    model_or_exported: torch.nn.Module | torch.export.ExportedProgram,
    program: ProgramLike | None = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
    entrypoint_name: str = "main",
    inputs: Mapping[str, Any] | None = None,
    images: Mapping[str, Any] | None = None,
    random: str | None = None,
    **settings: Any,
) -> Verdict:
    """Run torch and a converted program on the same inputs and compare the results.

    Torch runs the model, or the exported program. `program` is the converted program or the path
    of an asset; without it the model is converted first. The inputs are `args` and `kwargs`, or
    the example inputs of the export, and generated inputs of the same kind. If the program stores
    compressed weights and the model does not, `verdict.compression` says what part of the error
    these explain.

    ```python
    verdict = coreai_torch.verify(model, "linear.aimodel", (x,))
    verdict.raise_if_failed()
    ```

    Args:
        model_or_exported: a model, or an `ExportedProgram`, decomposed or not.
        program: the program that was converted from it.
        args: positional inputs.
        kwargs: inputs by name.
        dynamic_shapes: dynamic sizes of a model, as for `torch.export.export`.
        input_names: the names that the program must have.
        output_names: likewise.
        state_names: likewise.
        entrypoint_name: the function of the program.
        inputs: how to draw inputs that have rules, by name: "offsets", "lengths", "segment_ids",
            "mask", "probabilities", "permutation", "angles", "sorted", "fixed", or a function of
            the given tensor, a shape and a `torch.Generator`. Offsets of embedding bags, bounds of
            `searchsorted` and lengths of `segment_reduce` are found without it.
        images: the image inputs of the program, as for `convert`; by default those that the
            program records.
        random: where the program takes its random numbers from, as for `convert`; by default what
            the program records.
        settings: `mode`, `full` or `quick`, which lets torch run the program on generated inputs if
            calls of the runtime are slow, or `accept-unjudged`, which is quick and accepts outputs
            that cannot be judged; `trials`, a `TrialPlan` of the inputs to generate;
            `seconds`, the time limit for generated inputs (60, or 5 if quick); `tolerance`,
            relative to the largest value of an output, instead of the limits of its elements;
            `converter`, the converter that made the program; `locate=False` to skip the search
            for the first wrong op; `engine`, either `runtime` of this machine or `torch`, which
            executes the program op by op, runs Metal kernels from their source and accumulates
            float16 products as devices do (`auto` chooses the runtime unless the program needs
            these); `device` (`cpu`), such as `cuda`, on which torch runs both the model and the
            program instead of the runtime; `timeout` (600), the limit in seconds for each step of
            native code.
    """
    if inputs:
        trials = settings.get("trials") or TrialPlan()
        settings["trials"] = replace(trials, inputs={**trials.inputs, **inputs})
    names = Names(input_names, output_names, state_names)
    named = names != Names()
    options = _settings(entrypoint_name, named, settings)
    forward = getattr(model_or_exported, "forward", None)
    taken = list(inspect.signature(forward).parameters) if forward is not None else []
    ports = Ports(
        input_names,
        output_names,
        state_names,
        images=images or recorded_images(program, entrypoint_name, taken),
        random=random or recorded_randomness(program),
    )
    args, kwargs = ports.model_inputs(model_or_exported, args, kwargs)
    model = prepare(
        model_or_exported,
        args,
        kwargs,
        dynamic_shapes,
        rules=capture_rules(options.converter),
        names=None if ports.images else names,
        randomness=ports.randomness,
        assume=recorded_assume(program) is not None,
    )
    if ports.images and not images:
        planned = [port.name for port in plan(model.program, names).inputs]
        ports = replace(ports, images=recorded_images(program, entrypoint_name, planned))
    captured = ports.apply(model)
    leaves = Subject(model.program, model.plan, model.reference).leaves(args, kwargs)
    leaves = ports.leaves(model, captured, leaves)
    if options.converter is not None:
        captured, leaves, options = _in_half(captured, leaves, names, options)
    reference = on_device(captured.reference, options.device)
    subject = Subject(captured.program, captured.plan, captured.reference, reference)
    if program is None:
        return examine(subject, _convert(subject, names, options), leaves, options)
    if not _is_compressed(subject, program):
        return examine(subject, program, leaves, options)
    return _examine_compressed(subject, program, leaves, options)


def _in_half(
    captured: Captured, leaves: Leaves, names: Names, options: Settings
) -> tuple[Captured, Leaves, Settings]:
    """Return the model in the precision of the converter, which programs are compared with.

    As in `convert`, its error against float32 is measured on the calibration inputs and limited.
    """
    assert options.converter is not None
    converter, precision = options.converter.split_precision()
    if precision is None:
        return captured, leaves, options
    half, _ = precision.apply(captured.program)
    made = Captured(half, plan(half, names), half)
    return made, precision.as_ports(leaves), replace(options, converter=converter)


def _is_compressed(subject: Subject, program: ProgramLike) -> bool:
    """Return whether the program has compressed weights, and the model does not."""
    if not isinstance(program, AIProgram | AIModelAsset | Path | str):
        return False
    try:
        functions = reading.read(program, largest=0).functions
    except (ConversionError, NativeError, OSError, ValueError):
        return False  # `examine` describes what is wrong with it
    return stores_compressed_weights(subject, functions)


def _examine_compressed(
    subject: Subject, program: ProgramLike, leaves: Leaves, options: Settings
) -> Verdict:
    """Compare a program with the original model, and with the model that has its weights."""
    verdict = examine(subject, program, leaves, replace(options, locate=False))
    engine, _ = _engine(subject, program, options)
    with _starter(engine, program, options) as starter:
        return Explanation(subject, program, options.entrypoint).explain(
            verdict,
            leaves,
            lambda: starter(optimize=False),
            lambda: examine(subject, program, leaves, options),
        )


def check_mode(mode: Any) -> Mode:
    """Return the mode of a comparison, or raise."""
    if mode not in list(Mode):
        raise VerificationInputError(
            f"no verification mode {mode!r}\n  try   pass 'quick', 'full' or 'accept-unjudged'"
        )
    return Mode(mode)


def _settings(entrypoint: str, named: bool, given: dict[str, Any]) -> Settings:
    known = {f.name for f in fields(Settings)} - {"entrypoint", "named", "only_optimized"}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"verify has no argument {unknown[0]!r}; there are {sorted(known)}")
    if given.get("trials") is None:
        given.pop("trials", None)
    if not isinstance(given.get("trials", TrialPlan()), TrialPlan):
        raise ArgumentTypeError(
            f"trials is {given['trials']!r}\n  try   pass TrialPlan(seeds=2, steps=3)"
        )
    check_converter(given.get("converter"))
    engine = given.pop("engine", Engine.AUTO)
    given["mode"] = check_mode(given.get("mode", Mode.FULL))
    if engine not in list(Engine):
        known_engines = [*map(str, Engine)]
        raise VerificationInputError(f"no engine {engine!r}\n  try   pass one of {known_engines}")
    engine = Engine(engine)
    check_device(given.setdefault("device", "cpu"), engine)
    return Settings(entrypoint, named, engine=engine, **given)


def examine(subject: Subject, program: ProgramLike, leaves: Leaves, options: Settings) -> Verdict:
    """Compare a program with a captured model; `leaves` are the flattened inputs."""
    watch = Stopwatch()
    chosen_rules(subject, leaves, options.trials.inputs)  # raises before a process starts
    limits = ErrorLimits(subject, options.tolerance, options.device)
    inexact = inexact_ops(subject.exported, program)
    trials = Trials(subject, limits, options.named, options.time_limit, inexact)
    steps = max(1, options.trials.steps) if subject.plan.states else 1
    engine, reason = _engine(subject, program, options)
    with _starter(engine, program, options) as starter:
        for variants in _loaded_together(starter.source, options):
            inputs = draws(subject, leaves, options.trials)
            instead = None if options.mode is Mode.FULL else starter.interpreter
            trials.run(starter, inputs, steps, variants, instead)
        if options.only_optimized and trials.failure:  # is it wrong before, too?
            trials.run(starter, [trials.failure.draw], steps, (False,))
        opinion = _second_opinion(trials, starter) if trials.failure else ""
    weights = _changed_weights(trials, program, options) if options.locate else ()
    search = options.locate and not weights
    divergence, found = _locate(trials, options) if search else (None, "")
    notes = (found, reason, subject.note, _fallback(limits), opinion, _special(trials))
    return Verdict(
        options.entrypoint,
        tuple(trials.done),
        tuple(trials.problems),
        tuple(trials.left_out),
        tuple(note for note in notes if note),
        kernels(subject.exported) if engine is Engine.TORCH else (),
        divergence,
        watch.seconds,
        weights=weights,
        unjudged=tuple(trials.unjudged.values()),
        accepts_unjudged=options.mode is Mode.ACCEPT_UNJUDGED,
    )


def _engine(subject: Subject, program: ProgramLike, options: Settings) -> tuple[Engine, str]:
    """Return the engine for a program, and the reason if it is not the runtime."""
    engine, reason = chosen(options.engine, subject.exported, options.device)
    if options.engine is not Engine.AUTO or engine is not Engine.RUNTIME:
        return engine, reason
    limit = _SECONDS[options.mode] if options.only_optimized else options.time_limit
    return by_predicted_time(slow_ops(program, options.entrypoint), limit)


def _convert(subject: Subject, names: Names, options: Settings) -> AIProgram:
    converter = (options.converter or TorchConverter()).empty(TorchConverter.Mode.DEBUG)
    converter.add_exported_program(
        subject.exported, names.inputs, names.outputs, names.states, options.entrypoint
    )
    return converter.to_coreai()


def _fallback(limits: ErrorLimits) -> str:
    """Return a note if the limits do not come from the error analysis."""
    if not limits.problem:
        return ""
    return f"the tolerance is that of the dtypes: the error analysis failed: {limits.problem}"


def _special(trials: Trials) -> str:
    """Return a note if ops met numbers on which programs are documented to differ from torch."""
    failure = trials.failure
    if failure is None:
        return ""
    if failure.at_extremes:
        return (
            f"{', '.join(failure.at_extremes)} computes with infinities, NaN or a division by zero "
            "here, and treats them as torch does with exact=True only"
        )
    ops = undefined_ops(trials.subject.exported, failure.call.leaves)
    if not ops:
        return ""
    return (
        f"torch leaves the result of {', '.join(ops)} undefined on these inputs: processors differ "
        "in casts of numbers out of range and in the sign of NaN, which programs take as positive, "
        "and uninitialized memory holds any numbers"
    )


@contextmanager
def _starter(engine: Engine, program: ProgramLike, options: Settings) -> Iterator[Starter]:
    with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
        source = _program_file(program, Path(folder))
        yield Starter(engine, program, source, options)


@dataclass(frozen=True)
class Starter:
    """Load a program from its file into an engine."""

    engine: Engine
    program: ProgramLike
    source: ProgramFile
    options: Settings

    def __call__(self, *, optimize: bool) -> Runner:
        """Load the program as it is, or optimized."""
        return start(
            self.engine,
            self.source,
            entrypoint=self.options.entrypoint,
            optimize=optimize,
            timeout=self.options.timeout,
            device=self.options.device,
        )

    def interpreter(self) -> Runner:
        """Load the program as it is in torch, which runs it op by op."""
        if isinstance(self.program, AIProgram):
            options = self.options
            return RunByTorch.of_program(self.program, options.entrypoint, options.device)
        return replace(self, engine=Engine.TORCH)(optimize=False)


def _loaded_together(source: ProgramFile, options: Settings) -> list[tuple[bool, ...]]:
    """Return which variants (optimized or not) are loaded at the same time.

    Those of a large program are loaded one after the other to save memory; torch then runs twice.
    """
    if options.only_optimized:
        return [(True,)]
    path = source.bytecode if source.asset is None else source.asset / "main.mlirb"
    large = path is not None and path.exists() and path.stat().st_size > _LARGE
    return [(False,), (True,)] if large else [(False, True)]


def _second_opinion(trials: Trials, starter: Starter) -> str:
    """Run the failed trial in the torch engine, to tell wrong programs from runtime faults."""
    assert trials.failure is not None
    if trials.failure.trial.engine == Engine.TORCH:
        return ""
    try:
        runner = replace(starter, engine=Engine.TORCH)(optimize=trials.failure.trial.optimized)
    except NativeError as error:
        return f"the torch engine could not run the program: {error}"
    return trials.opinion(runner)


def _program_file(program: ProgramLike, folder: Path) -> ProgramFile:
    if isinstance(program, AIProgram):
        path = folder / "program.mlirbc"
        write_module(program, path)
        return ProgramFile(bytecode=path)
    if not isinstance(program, AIModelAsset | Path | str):
        raise ArgumentTypeError(
            f"expected a Core AI program, not a {type(program).__name__}\n"
            "  try   pass an AIProgram, an AIModelAsset or the path of an .aimodel"
        )
    path = Path(program.path if isinstance(program, AIModelAsset) else program).absolute()
    if not path.is_dir():
        raise VerificationInputError(
            f"there is no asset at {path}\n  try   pass the path of an .aimodel, or a program"
        )
    resources.check(path)
    return ProgramFile(asset=path)


def _changed_weights(
    trials: Trials, program: ProgramLike, options: Settings
) -> tuple[ChangedConstant, ...]:
    """Return the weights of a program that differs, if they are not those of the model."""
    if trials.failure is None or trials.problems:
        return ()
    return changed_weights(
        trials.subject,
        program,
        options.entrypoint,
        lambda: _convert(trials.subject, Names(), options),
    )


def _locate(trials: Trials, options: Settings) -> tuple[Divergence | None, str]:
    """Search for the first op that diverges; return it, and a note if the search failed."""
    if trials.failure is None or trials.problems:  # wrong names or orders explain the failure
        return None, ""
    registry = options.converter._registry if options.converter is not None else BUILTIN
    engine = Engine(trials.failure.trial.engine)
    search = Search(
        trials.subject, registry, trials.limits, engine, options.timeout, options.device
    )
    try:
        return search.first(trials.failure)
    except (ConversionError, NativeError) as error:
        return None, f"the first op that diverges could not be found: {error}"
