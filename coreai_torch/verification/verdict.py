"""What a verification saw, as data that reports, the command line and tests read alike."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import VerificationError
from ..numerics.output_error import OutputError


@dataclass(frozen=True)
class Trial:
    """One call of the program with one set of inputs."""

    inputs: str  # "given", "seed 1", "zeros", "extremes", "n=7"
    optimized: bool
    step: int  # the number of calls before it, on the same state
    outputs: tuple[OutputError, ...] = ()
    states: tuple[OutputError, ...] = ()
    problem: str = ""  # the program failed where torch did not

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return not self.problem and all(e.ok for e in (*self.outputs, *self.states))

    def __str__(self) -> str:
        """Which call it was."""
        step = f", call {self.step + 1}" if self.step else ""
        return f"inputs {self.inputs}{step}, {'after' if self.optimized else 'before'} optimize()"


@dataclass(frozen=True)
class Divergence:
    """The first operation where torch and the program part."""

    node: str
    op: str
    module: str
    source_line: str
    error: OutputError
    alone: bool | None  # the op is wrong on the program's own operands; None if that is unknown
    trial: str

    def __str__(self) -> str:
        """Where, what, and both values."""
        inside = f" in module {self.module!r}" if self.module else ""
        blame = {
            True: "the op itself gives another result on equal operands",
            False: "on the operands that the program computed torch gives the same: the error "
            "was carried here and grew past the tolerance",
            None: "",
        }[self.alone]
        lines = [f"the first op to part is {self.op} (%{self.node}){inside}", f"  {self.error}"]
        lines += [f"  {self.source_line}"] if self.source_line else []
        lines += [f"  {blame}"] if blame else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """All that was seen; true when the program gives torch's numbers."""

    entrypoint: str
    trials: tuple[Trial, ...] = ()
    ports: tuple[str, ...] = ()  # wrong names or orders
    left_out: tuple[str, ...] = ()  # inputs that were not tried, each with the reason
    notes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()  # Metal kernels that ran from their source
    divergence: Divergence | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether names, orders and all numbers agree, and something was compared at all."""
        compared = any(t.outputs or t.states for t in self.trials)
        return compared and not self.ports and all(t.ok for t in self.trials)

    def __bool__(self) -> bool:
        """The same as `ok`."""
        return self.ok

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The calls that did not agree."""
        return tuple(t for t in self.trials if not t.ok)

    def worst(self) -> dict[str, OutputError]:
        """For each output and state its worst error over all calls."""
        worst: dict[str, OutputError] = {}
        for trial in self.trials:
            for error in (*trial.outputs, *trial.states):
                held = worst.get(error.name)
                if held is None or _badness(error) > _badness(held):
                    worst[error.name] = error
        return worst

    def raise_if_failed(self) -> Verdict:
        """The verdict itself, or a `VerificationError` with it."""
        if not self.ok:
            raise VerificationError(self)
        return self

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON lacks are strings."""
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        plain["ok"] = self.ok
        for trial, told in zip(self.trials, plain["trials"], strict=True):
            told["ok"] = trial.ok
        plain["worst"] = {n: _plain(dataclasses.asdict(e)) for n, e in self.worst().items()}
        return plain

    def __str__(self) -> str:
        """A summary, and all that is wrong."""
        return "\n".join([self._headline(), *self._details()])

    def _headline(self) -> str:
        where = f"entrypoint {self.entrypoint!r}"
        count = f"{len(self.trials)} calls"
        if self.ok:
            return f"{where} gives torch's numbers in {count}"
        if not self.failures and not self.ports:
            return f"{where}: nothing could be compared: no call, or no output and no state"
        if not self.failures:
            return f"{where} has other ports than torch"
        return f"{where} does not give torch's numbers: {len(self.failures)} of {count} differ"

    def _details(self) -> Iterable[str]:
        yield from (f"  {port}" for port in self.ports)
        for trial in self.failures[:1]:
            yield f"  {trial}:"
            wrong = [e for e in (*trial.outputs, *trial.states) if not e.ok]
            yield from (f"    {error}" for error in wrong)
            yield from ([_indented(trial.problem, 4)] if trial.problem else [])
        if self.ok:
            yield from (f"  {error}" for error in self.worst().values())
        if self.divergence is not None:
            yield _indented(str(self.divergence), 2)
        yield from (f"  note: {note}" for note in self.notes)
        yield from (f"  left out: {left}" for left in self.left_out)


def _badness(error: OutputError) -> tuple[bool, float]:
    return not error.ok, error.max_rel


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
