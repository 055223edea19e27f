"""The result of a verification as data, for reports, the command line and tests."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..asset.changed_constants import ChangedConstant
from ..errors import UnjudgedError, VerificationError
from ..formatting import counted
from ..numerics.output_error import OutputError
from .compression_effect import CompressionEffect
from .unjudged import Unjudged

_SHOWN = 5  # weights that are described


@dataclass(frozen=True)
class Trial:
    """One call of the program with one set of inputs."""

    inputs: str  # "given", "seed 1", "zeros", "extremes", "n=7"
    optimized: bool
    step: int  # the number of calls before it, on the same state
    outputs: tuple[OutputError, ...] = ()
    states: tuple[OutputError, ...] = ()
    problem: str = ""  # why the program failed although torch did not
    engine: str = "runtime"  # what ran the program
    at_extremes: tuple[str, ...] = ()  # ops that explain a difference

    @property
    def ok(self) -> bool:
        """Whether all outputs and states agree with torch, but for documented extremes."""
        return not self.problem and (bool(self.at_extremes) or not self.wrong)

    @property
    def wrong(self) -> tuple[OutputError, ...]:
        """The outputs and states that differ."""
        return tuple(e for e in (*self.outputs, *self.states) if not e.ok)

    def __str__(self) -> str:
        """Describe the call."""
        step = f", call {self.step + 1}" if self.step else ""
        by = "" if self.engine == "runtime" else ", run by torch"
        when = "after" if self.optimized else "before"
        return f"inputs {self.inputs}{step}, {when} optimize(){by}"


@dataclass(frozen=True)
class Divergence:
    """The first op whose result differs from torch's."""

    node: str
    op: str
    module: str
    source_line: str
    error: OutputError
    alone: bool | None  # whether the op is wrong on the operands it got; None if unknown
    trial: str
    narrowed: str = ""  # what exceeds 32 bits, if that is the cause

    def __str__(self) -> str:
        """Describe the op, its place and both values."""
        inside = f" in module {self.module!r}" if self.module else ""
        blame = {
            True: "the op itself is wrong: torch computes another result from the same operands",
            False: "the op itself is right: torch computes the same from the same operands; an "
            "earlier error grew past the tolerance here",
            None: "",
        }[self.alone]
        lines = [f"first op that diverges: {self.op} (%{self.node}){inside}", f"  {self.error}"]
        lines += [f"  {self.source_line}"] if self.source_line else []
        if self.narrowed:
            blame = (
                f"{self.narrowed} exceeds 32 bits in torch, and devices compute integers in 32 "
                "bits (narrowing): use a smaller range of integers, or floating point"
            )
        lines += [f"  {blame}"] if blame else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """The result of a verification; true if the program matches torch."""

    entrypoint: str
    trials: tuple[Trial, ...] = ()
    ports: tuple[str, ...] = ()  # wrong names or wrong order
    left_out: tuple[str, ...] = ()  # inputs that were skipped, each with the reason
    notes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()  # Metal kernels that ran from their source
    divergence: Divergence | None = None
    seconds: float = field(default=0.0, compare=False)
    compression: CompressionEffect | None = None  # if the weights of the program are compressed
    weights: tuple[ChangedConstant, ...] = ()  # of the program, if they are not the model's
    unjudged: tuple[Unjudged, ...] = ()  # outputs and states whose limits are too wide
    accepts_unjudged: bool = False  # the caller accepts them

    @property
    def ok(self) -> bool:
        """Whether names, order and all numbers agree, and all outputs could be judged."""
        return self._agrees and (self.accepts_unjudged or not self.unjudged)

    @property
    def _agrees(self) -> bool:
        return self._compared and not self.ports and all(t.ok for t in self.trials)

    @property
    def _compared(self) -> bool:
        return any(e.compared for t in self.trials for e in (*t.outputs, *t.states))

    def __bool__(self) -> bool:
        """Return `ok`."""
        return self.ok

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The calls that differed."""
        return tuple(t for t in self.trials if not t.ok)

    def worst(self) -> dict[str, OutputError]:
        """Return the worst error of each output and state over all calls."""
        worst: dict[str, OutputError] = {}
        for trial in self.trials:
            for error in (*trial.outputs, *trial.states):
                if trial.at_extremes and not error.ok:
                    continue  # named by a note
                known = worst.get(error.name)
                if known is None or _badness(error) > _badness(known):
                    worst[error.name] = error
        return worst

    def raise_if_failed(self) -> Verdict:
        """Return the verdict itself if `ok`, else raise a `VerificationError` with it.

        An `UnjudgedError` says that nothing is wrong but that an output cannot be judged.
        """
        if not self.ok:
            raise UnjudgedError(self) if self._agrees else VerificationError(self)
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; NaN, infinities and complex numbers are strings."""
        data: dict[str, Any] = _to_json(dataclasses.asdict(self))
        data["ok"] = self.ok
        for trial, entry in zip(self.trials, data["trials"], strict=True):
            entry["ok"] = trial.ok
        data["worst"] = {n: _to_json(dataclasses.asdict(e)) for n, e in self.worst().items()}
        return data

    def __str__(self) -> str:
        """Return a summary and all problems."""
        return "\n".join([self._headline(), *self._details()])

    def _headline(self) -> str:
        where = f"entrypoint {self.entrypoint!r}"
        count = counted(len(self.trials), "call")
        if self._agrees and self.unjudged:
            names = ", ".join(repr(u.name) for u in self.unjudged)
            accepted = "; it is accepted as it is" if self.accepts_unjudged else ""
            return f"{where} is not judged: {names} cannot be compared with torch{accepted}"
        if self.ok:
            return f"{where} matches torch in {count}"
        if not self.failures and not self.ports:
            ran = any(t.outputs or t.states for t in self.trials)
            why = (
                "all values are NaN on both sides" if ran else "no call ran, or no output and state"
            )
            return f"{where}: nothing could be compared: {why}"
        if not self.failures:
            return f"{where} has different ports than torch"
        return f"{where} does not match torch: {len(self.failures)} of {count} differ"

    @property
    def runtime_calls(self) -> int:
        """The number of calls that the runtime made, rather than torch."""
        return sum(t.engine == "runtime" for t in self.trials)

    def _where(self) -> Iterable[str]:
        """Say which inputs ran where."""
        for engine, by in (("runtime", "the runtime"), ("torch", "torch, op by op,")):
            ran = [t for t in self.trials if t.engine == engine]
            if ran:
                inputs = ", ".join(dict.fromkeys(t.inputs for t in ran))
                times = [
                    w
                    for w, o in (("before", False), ("after", True))
                    if o in {t.optimized for t in ran}
                ]
                yield (
                    f"{by} made {counted(len(ran), 'call')} {' and '.join(times)} optimize(): "
                    f"inputs {inputs}"
                )

    def _caveats(self) -> Iterable[str]:
        """Say what was not compared, and where equal scores leave the result open."""
        extreme = [t for t in self.trials if t.at_extremes]
        for name in dict.fromkeys(e.name for t in extreme for e in t.wrong):
            differ = [t for t in extreme if name in {e.name for e in t.wrong}]
            ops = ", ".join(dict.fromkeys(op for t in differ for op in t.at_extremes))
            where = ", ".join(dict.fromkeys(t.inputs for t in differ))
            yield (
                f"{name}: differs at infinities and NaN only, which {ops} treats as torch does "
                f"with exact=True (inputs {where})"
            )
        errors = [(t, e) for t in self.trials for e in (*t.outputs, *t.states)]
        for name in dict.fromkeys(e.name for _, e in errors):
            tied = {t.inputs: None for t, e in errors if e.name == name and e.ties}
            if tied:
                yield (
                    f"{name}: a tie: it differs only where the deciding scores are equal within "
                    f"their error (inputs {', '.join(tied)})"
                )
            for note in dict.fromkeys(e.note for _, e in errors if e.name == name and e.note):
                noted = {t.inputs: None for t, e in errors if e.name == name and e.note == note}
                yield f"{name}: {note} (inputs {', '.join(noted)})"
            unknown = {t.inputs: None for t, e in errors if e.name == name and e.not_compared}
            if unknown:
                yield f"{name}: NaN on both sides was not compared (inputs {', '.join(unknown)})"

    def _details(self) -> Iterable[str]:
        yield from (f"  {port}" for port in self.ports)
        for trial in self.failures[:1]:
            yield f"  {trial}:"
            wrong = [e for e in (*trial.outputs, *trial.states) if not e.ok]
            yield from (f"    {error}" for error in wrong)
            yield from ([_indented(trial.problem, 4)] if trial.problem else [])
        yield from (_indented(str(one), 2) for one in self.unjudged)
        if self._agrees:
            yield from (f"  {error}" for error in self.worst().values())
        if self.weights:
            yield "  weights of the program are not those of the model:"
            yield from (f"    {weight}" for weight in self.weights[:_SHOWN])
            if len(self.weights) > _SHOWN:
                yield f"    and {len(self.weights) - _SHOWN} more"
        if self.compression is not None:
            yield _indented(str(self.compression), 2)
        if self.divergence is not None:
            yield _indented(str(self.divergence), 2)
        yield from (f"  note: {note}" for note in (*self._where(), *self.notes, *self._caveats()))
        yield from (f"  skipped: {left}" for left in self.left_out)


def _badness(error: OutputError) -> tuple[bool, float]:
    return not error.ok, error.max_rel


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(v) for v in value]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
