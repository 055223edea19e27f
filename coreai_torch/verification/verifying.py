"""`verify`: one call that says whether a program does what the model does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from coreai.authoring import AIModelAsset, AIProgram

from ..capture.exporting import decomposed, exported
from ..capture.io_plan import Names, plan
from ..converter import TorchConverter, get_decomp_table
from ..errors import ConversionError, NativeError, VerificationInputError
from ..ir.program import write_module
from ..lowering.registry import BUILTIN, Registry
from . import measure
from .draws import Plan, draws
from .engines import Engine, chosen, kernels, start
from .isolation import Source
from .locate import Search
from .subject import Subject
from .trials import Runner, Trials
from .verdict import Divergence, Verdict

Program: TypeAlias = "AIProgram | AIModelAsset | Path | str"


def verify(
    model_or_exported: torch.nn.Module | torch.export.ExportedProgram,
    program: Program | None = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    state_names: Sequence[str] | None = None,
    entrypoint_name: str = "main",
    converter: TorchConverter | None = None,
    trials: Plan | None = None,
    tolerance: float | None = None,
    seconds: float = 60.0,
    timeout: float = 600.0,
    locate: bool = True,
    engine: Engine | str = Engine.AUTO,
) -> Verdict:
    """Run torch and the program on the same inputs and say how far they are apart.

    The model is run as it is; an exported program is run by torch. `program` is what was converted
    from it, or the path of an asset; without one the model is converted now. Inputs are `args` and
    `kwargs`, or those of the export, and others like them as `trials` says; generated ones are left
    out once `seconds` are over. `tolerance` replaces that of each dtype; it is relative to the
    largest value of an output. `converter` brings lowerings and kernels of its own to the search
    for the first op that is wrong, which `locate=False` leaves out. `engine` is the run time of
    this machine, or torch, which executes the program op by op, also runs Metal kernels from their
    source and adds up float16 products as devices do; `auto` takes the run time unless there are
    such. No step of the native code may take longer than `timeout`.
    """
    began = time.monotonic()
    names = Names(input_names, output_names, state_names)
    subject = _subject(model_or_exported, args, kwargs, dynamic_shapes, names)
    given = subject.leaves(args, dict(kwargs) if kwargs is not None else None)
    if program is None:
        program = _converted(subject, names, entrypoint_name, converter)
    limits = _limits(subject, tolerance)
    named = any(n is not None for n in (input_names, output_names, state_names))
    made = Trials(subject, limits, named, seconds)
    tried = trials or Plan()
    steps = max(1, tried.steps) if subject.plan.states else 1
    by, reason = chosen(Engine(engine), subject.exported)
    with _starter(by, program, entrypoint_name, timeout) as starter:
        made.run(starter, draws(subject, given, tried), steps)
        blame = _second_opinion(made, by, starter) if made.failure else ""
    registry = converter._registry if converter is not None else BUILTIN
    divergence, found = _cause(made, registry, by, timeout) if locate else (None, "")
    return Verdict(
        entrypoint_name,
        tuple(made.done),
        tuple(made.problems),
        tuple(made.left_out),
        tuple(note for note in (reason, blame, found) if note),
        kernels(subject.exported) if by is Engine.TORCH else (),
        divergence,
        time.monotonic() - began,
    )


def _subject(
    source: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    names: Names,
) -> Subject:
    if isinstance(source, torch.export.ExportedProgram):
        program, reference = source, source.module()
    elif isinstance(source, torch.nn.Module):
        program, reference = exported(source, args, kwargs, dynamic_shapes), source
    else:
        raise VerificationInputError(
            f"verify takes a model or an ExportedProgram, not a {type(source).__name__}\n"
            "  try   the model that was converted, with its args"
        )
    if program.dialect == "TRAINING":  # as `export` leaves it
        program = decomposed(program, get_decomp_table())
    return Subject(program, plan(program, names), reference)


def _converted(
    subject: Subject, names: Names, entrypoint: str, converter: TorchConverter | None
) -> AIProgram:
    fresh = (converter or TorchConverter()).empty(TorchConverter.Mode.DEBUG)
    fresh.add_exported_program(
        subject.exported, names.inputs, names.outputs, names.states, entrypoint
    )
    return fresh.to_coreai()


def _limits(subject: Subject, tolerance: float | None) -> dict[torch.dtype, float]:
    limits = measure.allowed(subject.exported.graph)
    return limits if tolerance is None else dict.fromkeys(limits, tolerance)


@contextmanager
def _starter(
    engine: Engine, program: Program, entrypoint: str, timeout: float
) -> Iterator[Starter]:
    with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
        yield Starter(engine, _source(program, Path(folder)), entrypoint, timeout)


@dataclass(frozen=True)
class Starter:
    """Loads a program from its file."""

    engine: Engine
    source: Source
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


def _source(program: Program, folder: Path) -> Source:
    if isinstance(program, AIProgram):
        path = folder / "program.mlirbc"
        write_module(program, path)
        return Source(bytecode=path)
    path = Path(program.path if isinstance(program, AIModelAsset) else program).absolute()
    if not path.is_dir():
        raise VerificationInputError(
            f"there is no asset at {path}\n  try   the path of an .aimodel, or a program"
        )
    return Source(asset=path)


def _cause(
    made: Trials, registry: Registry, engine: Engine, timeout: float
) -> tuple[Divergence | None, str]:
    if made.failure is None or made.problems:  # wrong names or orders are explanation enough
        return None, ""
    search = Search(made.subject, registry, made.tolerance, engine, timeout)
    try:
        return search.first(made.failure)
    except (ConversionError, NativeError) as error:
        return None, f"the first op to part could not be found: {error}"
