"""Run torch and the program on the same inputs, before and after `optimize()`, and compare."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import NativeError, VerificationInputError
from ..numerics.arrays import array, tensor
from ..numerics.error_analysis import ENOUGH
from . import ports
from .draws import Draw
from .isolation import Arrays, Ports
from .limits import CallLimits, ErrorLimits
from .subject import ReferenceCall, Subject
from .verdict import Trial

_SLOW = 0.1  # seconds of a call in torch from which on there are few noisy runs
_FEW = 3


class Runner(Protocol):
    """Runs one function of a program."""

    ports: Ports

    @property
    def alive(self) -> bool:
        """Whether it can be called again."""

    def call(self, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs, and the states after the call."""

    def close(self) -> None:
        """Release resources."""


class Start(Protocol):
    """Starts a runner of the program, optimized or not."""

    def __call__(self, *, optimize: bool) -> Runner:
        """Load the program."""


@dataclass(frozen=True)
class Failure:
    """The first call that differed, from which the cause is searched."""

    draw: Draw
    call: ReferenceCall
    trial: Trial
    limits: CallLimits


@dataclass
class Trials:
    """The calls made, and their results."""

    subject: Subject
    limits: ErrorLimits
    named: bool
    seconds: float
    done: list[Trial] = field(default_factory=list)
    problems: dict[str, None] = field(default_factory=dict)  # an ordered set
    left_out: list[str] = field(default_factory=list)
    failure: Failure | None = None

    def run(
        self, start: Start, draws: Iterable[Draw], steps: int, variants: Sequence[bool]
    ) -> None:
        """Try all draws within the time limit; the first is always tried.

        The `variants` are loaded at the same time; `True` is the optimized program.
        """
        began = time.monotonic()
        with ExitStack() as stack:
            runners: dict[bool, tuple[Runner, ports.Pairing]] = {}
            for optimized in variants:
                self._start(start, optimized, runners, stack)
            for number, draw in enumerate(draws):
                if number and time.monotonic() - began > self.seconds:
                    self.left_out.append(
                        f"{draw.label}: the time limit of {self.seconds:g} s was reached"
                    )
                    continue
                self._draw(draw, runners, steps)

    def _start(
        self,
        start: Start,
        optimized: bool,
        runners: dict[bool, tuple[Runner, ports.Pairing]],
        stack: ExitStack,
    ) -> None:
        try:
            runner = start(optimize=optimized)
        except NativeError as error:
            self.done.append(Trial("none", optimized, 0, problem=str(error)))
            return
        stack.callback(runner.close)
        pairing = ports.paired(runner.ports, self.subject.plan, named=self.named)
        self.problems.update(dict.fromkeys(pairing.problems))
        if pairing.complete:
            runners[optimized] = (runner, pairing)

    def _draw(
        self, draw: Draw, runners: dict[bool, tuple[Runner, ports.Pairing]], steps: int
    ) -> None:
        began = time.monotonic()
        try:
            calls = self.subject.calls(draw.leaves, steps)
        except Exception as failure:
            reason = str(failure).strip().splitlines() or [type(failure).__name__]
            if draw.label == "given":
                raise VerificationInputError(
                    f"the model itself fails on the given inputs: {type(failure).__name__}: "
                    f"{reason[0]}\n  try   pass inputs that the model accepts in torch"
                ) from failure
            self.left_out.append(f"{draw.label}: torch itself rejects them: {reason[0]}")
            return
        each = (time.monotonic() - began) / len(calls)
        limits = self.limits.of(calls, ENOUGH if each < _SLOW else _FEW)
        for optimized, (runner, pairing) in list(runners.items()):
            try:
                self._steps(draw, limits, runner, pairing, optimized)
            except NativeError as error:
                self.done.append(Trial(draw.label, optimized, 0, problem=str(error)))
                if not runner.alive:
                    del runners[optimized]

    def _steps(
        self,
        draw: Draw,
        limits: list[CallLimits],
        runner: Runner,
        pairing: ports.Pairing,
        optimized: bool,
    ) -> None:
        """Make the calls; each continues from the states of the program's last call."""
        states = _arrays(pairing.states, limits[0].call.states_before)
        for limit in limits:
            call = limit.call
            inputs = _arrays(pairing.inputs, self._inputs(call))
            raw, states = runner.call(inputs, states)
            got = {n: tensor(raw[n]) for n in pairing.outputs}
            outputs = limit.compare(pairing.outputs, got)
            after = {n: tensor(states[n]) for n in pairing.states}
            compared = limit.compare(pairing.states, after, states=True)
            trial = Trial(draw.label, optimized, limit.step, outputs, compared)
            self.done.append(trial)
            if not trial.ok:
                want = dict(zip(pairing.outputs, call.outputs, strict=True))
                allowed = dict(zip(pairing.outputs, limit.outputs, strict=True))
                self.problems.update(dict.fromkeys(ports.swapped(got, want, allowed)))
                self.failure = self.failure or Failure(draw, call, trial, limit)
                return  # later calls would start from a wrong state

    def opinion(self, runner: Runner) -> str:
        """Run the first call that differed in another engine, and say whether it differs too."""
        assert self.failure is not None
        call, trial = self.failure.call, self.failure.trial
        pairing = ports.paired(runner.ports, self.subject.plan, named=False)
        inputs = _arrays(pairing.inputs, self._inputs(call))
        try:
            raw, left = runner.call(inputs, _arrays(pairing.states, call.states_before))
        except NativeError as error:
            return f"no second opinion: {error}"
        got = {n: tensor(value) for n, value in (raw | left).items()}
        limits = self.failure.limits
        errors = limits.compare(pairing.outputs, got)
        errors += limits.compare(pairing.states, got, states=True)
        agrees = all(e.ok for e in errors)
        if agrees and not trial.step:
            return (
                "torch, running the same program op by op, matches the model: the runtime causes "
                "the difference"
            )
        if agrees:
            return "torch, starting from the model's own state, matches the model at this call"
        return (
            "torch, running the same program op by op, differs from the model too: the program "
            "causes the difference"
        )

    def _inputs(self, call: ReferenceCall) -> list[Any]:
        places = {node: at for at, node in enumerate(self.subject.arguments)}
        return [call.leaves[places[port.node]] for port in self.subject.plan.inputs]


def _arrays(names: list[str], values: list[Any]) -> Arrays:
    return {name: array(value) for name, value in zip(names, values, strict=True)}
