"""`verify`: one call that says whether a program does what the model does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from coreai.authoring import AIModelAsset, AIProgram

from ..asset import resources
from ..asset.program import write_module
from ..capture.io_plan import Names
from ..capture.prepare import prepare
from ..converter import TorchConverter, capture_rules, check_converter
from ..errors import ArgumentTypeError, ConversionError, NativeError, VerificationInputError
from ..lowering.registry import BUILTIN
from ..numerics.tolerance import graph_limits
from .draws import TrialPlan, draws
from .engines import Engine, chosen, kernels, start
from .isolation import ProgramFile
from .locate import Search
from .subject import Leaves, Subject
from .trials import Runner, Trials
from .verdict import Divergence, Verdict

_LARGE = 1 << 30  # bytes of a program that is loaded only once at a time

ProgramLike: TypeAlias = "AIProgram | AIModelAsset | Path | str"


@dataclass(frozen=True)
class Settings:
    """How a program is examined; `verify` tells what each of them means."""

    entrypoint: str = "main"
    named: bool = False  # the names of the plan were asked for, and others are wrong
    converter: TorchConverter | None = None
    trials: TrialPlan = field(default_factory=TrialPlan)
    tolerance: float | None = None
    seconds: float = 60.0
    timeout: float = 600.0
    locate: bool = True
    engine: Engine = Engine.AUTO


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
    **settings: Any,
) -> Verdict:
    """Run torch and the program on the same inputs and say how far they are apart.

    The model is run as it is; an exported program is run by torch. `program` is what was converted
    from it, or the path of an asset; without one the model is converted now. Inputs are `args` and
    `kwargs`, or those of the export, and others like them.

    ```python
    verdict = coreai_torch.verify(model, "linear.aimodel", (x,))
    verdict.raise_if_failed()
    ```

    Args:
        model_or_exported: what was converted.
        program: what it became.
        args: inputs by place.
        kwargs: inputs by name.
        dynamic_shapes: as for `torch.export`, if a model is given.
        input_names: the names the program should have; other names are then wrong.
        output_names: likewise.
        state_names: likewise.
        entrypoint_name: the function of the program.
        settings: `trials`, a `TrialPlan` of the inputs to generate; `seconds` (60) for trying them;
            `tolerance`, relative to the largest value of an output, in place of that of its dtype;
            `converter`, whose lowerings and kernels made the program; `locate=False` to leave out
            the search for the first wrong op; `engine`, the `runtime` of this machine or `torch`,
            which executes the program op by op, runs Metal kernels from their source and adds up
            float16 products as devices do (`auto` takes the runtime unless there are such);
            `timeout` (600), which no step of the native code may exceed.
    """
    names = Names(input_names, output_names, state_names)
    named = any(n is not None for n in (input_names, output_names, state_names))
    how = _settings(entrypoint_name, named, settings)
    captured = prepare(
        model_or_exported,
        args,
        kwargs,
        dynamic_shapes,
        rules=capture_rules(how.converter),
        names=names,
    )
    subject = Subject(captured.program, captured.plan, captured.reference)
    if program is None:
        program = _converted(subject, names, how)
    return examine(subject, program, subject.leaves(args, kwargs), how)


def _settings(entrypoint: str, named: bool, given: dict[str, Any]) -> Settings:
    known = {f.name for f in fields(Settings)} - {"entrypoint", "named"}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"verify has no argument {unknown[0]!r}; there are {sorted(known)}")
    if given.get("trials") is None:
        given.pop("trials", None)
    if not isinstance(given.get("trials", TrialPlan()), TrialPlan):
        raise ArgumentTypeError(
            f"trials is {given['trials']!r}\n  try   TrialPlan(seeds=2, steps=3)"
        )
    check_converter(given.get("converter"))
    engine = given.pop("engine", Engine.AUTO)
    if engine not in list(Engine):
        raise VerificationInputError(f"no engine {engine!r}\n  try   one of {[*map(str, Engine)]}")
    engine = Engine(engine)
    return Settings(entrypoint, named, engine=engine, **given)


def examine(subject: Subject, program: ProgramLike, given: Leaves, how: Settings) -> Verdict:
    """Hold a program to a subject that is at hand; what `verify` does once it has one."""
    began = time.monotonic()
    made = Trials(subject, _limits(subject, how.tolerance), how.named, how.seconds)
    steps = max(1, how.trials.steps) if subject.plan.states else 1
    engine, reason = chosen(how.engine, subject.exported)
    with _starter(engine, program, how) as starter:
        for variants in _loaded_together(starter.source):
            made.run(starter, draws(subject, given, how.trials), steps, variants)
        blame = _second_opinion(made, engine, starter) if made.failure else ""
    divergence, found = _cause(made, engine, how) if how.locate else (None, "")
    return Verdict(
        how.entrypoint,
        tuple(made.done),
        tuple(made.problems),
        tuple(made.left_out),
        tuple(note for note in (reason, blame, found) if note),
        kernels(subject.exported) if engine is Engine.TORCH else (),
        divergence,
        time.monotonic() - began,
    )


def _converted(subject: Subject, names: Names, how: Settings) -> AIProgram:
    fresh = (how.converter or TorchConverter()).empty(TorchConverter.Mode.DEBUG)
    fresh.add_exported_program(
        subject.exported, names.inputs, names.outputs, names.states, how.entrypoint
    )
    return fresh.to_coreai()


def _limits(subject: Subject, tolerance: float | None) -> dict[torch.dtype, float]:
    limits = graph_limits(subject.exported.graph)
    return limits if tolerance is None else dict.fromkeys(limits, tolerance)


@contextmanager
def _starter(engine: Engine, program: ProgramLike, how: Settings) -> Iterator[Starter]:
    with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
        yield Starter(engine, _source(program, Path(folder)), how.entrypoint, how.timeout)


@dataclass(frozen=True)
class Starter:
    """Loads a program from its file."""

    engine: Engine
    source: ProgramFile
    entrypoint: str
    timeout: float

    def __call__(self, *, optimize: bool) -> Runner:
        """As it is, or optimized."""
        return start(
            self.engine,
            self.source,
            entrypoint=self.entrypoint,
            optimize=optimize,
            timeout=self.timeout,
        )


def _loaded_together(source: ProgramFile) -> list[tuple[bool, ...]]:
    """A large program is loaded once at a time, though torch then runs twice."""
    path = source.bytecode if source.asset is None else source.asset / "main.mlirb"
    large = path is not None and path.exists() and path.stat().st_size > _LARGE
    return [(False,), (True,)] if large else [(False, True)]


def _second_opinion(made: Trials, engine: Engine, starter: Starter) -> str:
    """Whose fault a difference is: another engine runs the same program on the same inputs."""
    assert made.failure is not None
    other = Engine.RUNTIME if engine is Engine.TORCH else Engine.TORCH
    if other is Engine.RUNTIME:  # it was passed over for a reason
        return ""
    try:
        runner = replace(starter, engine=other)(optimize=made.failure.trial.optimized)
    except NativeError as error:
        return f"no second opinion: {error}"
    return made.opinion(runner)


def _source(program: ProgramLike, folder: Path) -> ProgramFile:
    if isinstance(program, AIProgram):
        path = folder / "program.mlirbc"
        write_module(program, path)
        return ProgramFile(bytecode=path)
    if not isinstance(program, AIModelAsset | Path | str):
        raise ArgumentTypeError(
            f"a {type(program).__name__} is no Core AI program\n"
            "  try   an AIProgram, an AIModelAsset or the path of an .aimodel"
        )
    path = Path(program.path if isinstance(program, AIModelAsset) else program).absolute()
    if not path.is_dir():
        raise VerificationInputError(
            f"there is no asset at {path}\n  try   the path of an .aimodel, or a program"
        )
    resources.check(path)
    return ProgramFile(asset=path)


def _cause(made: Trials, engine: Engine, how: Settings) -> tuple[Divergence | None, str]:
    if made.failure is None or made.problems:  # wrong names or orders are explanation enough
        return None, ""
    registry = how.converter._registry if how.converter is not None else BUILTIN
    search = Search(made.subject, registry, made.tolerance, engine, how.timeout)
    try:
        return search.first(made.failure)
    except (ConversionError, NativeError) as error:
        return None, f"the first op that diverges could not be found: {error}"
