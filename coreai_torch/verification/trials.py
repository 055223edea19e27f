"""Run torch and the program on the same inputs, before and after `optimize()`, and compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.fx as fx

from ..errors import ConversionError, NativeError, VerificationInputError
from ..numerics.arrays import array, tensor
from ..numerics.compare import widen
from ..numerics.narrowing import beyond_32_bits
from ..stopwatch import Stopwatch
from . import ports
from .draws import Draw
from .extremes import ops_at_extremes
from .isolation import Arrays
from .limits import CallLimits, ErrorLimits, TooSlowError
from .runner import Engine, Runner
from .subject import ReferenceCall, Subject
from .undefined_results import undefined_ops
from .unjudged import Unjudged
from .verdict import Trial

_SLOW_CALL = 0.5  # seconds of a call from which on torch makes the other calls


class Start(Protocol):
    """Starts a runner of the program, optimized or not."""

    @property
    def engine(self) -> Engine:
        """What runs it."""

    def __call__(self, *, optimize: bool) -> Runner:
        """Load the program."""


@dataclass(frozen=True)
class Failure:
    """The first call that differed, from which the cause is searched."""

    draw: Draw
    call: ReferenceCall
    trial: Trial
    limits: CallLimits
    at_extremes: tuple[str, ...] = ()  # ops that differ without exact=True on these inputs


@dataclass(frozen=True)
class Loaded:
    """A loaded variant of the program, its ports, and what runs it."""

    runner: Runner
    pairing: ports.Pairing
    engine: Engine


@dataclass(frozen=True)
class Results:
    """The outputs of consecutive calls, with the states after each, and the seconds they took."""

    calls: list[tuple[Arrays, Arrays]]
    seconds: float


@dataclass
class Trials:
    """The calls made, and their results."""

    subject: Subject
    limits: ErrorLimits
    named: bool
    seconds: float
    inexact: tuple[str, ...] = ()  # ops that differ at extremes, as the program was made
    done: list[Trial] = field(default_factory=list)
    problems: dict[str, None] = field(default_factory=dict)  # an ordered set
    left_out: list[str] = field(default_factory=list)
    failure: Failure | None = None
    unjudged: dict[str, Unjudged] = field(default_factory=dict)  # by output or state
    slowest: float = 0.0  # seconds of the slowest call of the program

    def run(
        self,
        start: Start,
        draws: Iterable[Draw],
        steps: int,
        variants: Sequence[bool],
        instead: Callable[[], Runner] | None = None,
    ) -> None:
        """Try draws until one fails or the time limit is reached; the first is always tried.

        With `instead`, the limit does not count the first, and no draw that would exceed it is
        tried. The `variants` are loaded and run at the same time; `True` is the optimized program.
        If a call of the first draw is slow, `instead` loads a runner for the other draws.
        """
        watch = Stopwatch()
        quick, expected = instead is not None, 0.0  # seconds of a draw
        with ExitStack() as stack:
            inline = start.engine is Engine.TORCH  # modes of torch belong to this thread
            pool: Executor = stack.enter_context(
                _Inline() if inline else ThreadPoolExecutor(len(variants))
            )
            loading = {o: pool.submit(start, optimize=o) for o in variants}
            loaded: dict[bool, Loaded] | None = None
            for number, draw in enumerate(draws):
                if number and self._skip(draw, watch.seconds + expected):
                    continue
                reference = Stopwatch()
                calls = self._reference(draw, steps)
                expected = max(expected, reference.seconds) if quick else 0.0
                if loaded is None:
                    loaded = self._wait(loading, start.engine, stack)
                elif number == 1 and instead is not None and self.slowest > _SLOW_CALL:
                    loaded, pool = self._replace(instead, stack), _Inline()
                if calls:
                    left = self.seconds - watch.seconds if quick and number else math.inf
                    self._draw(draw, calls, loaded, pool, left)
                if quick and not number:  # the limit is for the other draws
                    expected += self.slowest * len(calls)
                    watch = Stopwatch()

    def _skip(self, draw: Draw, seconds: float) -> bool:
        if not all(trial.ok for trial in self.done):
            reason = "others: earlier inputs show that the program is wrong"
            if reason not in self.left_out:
                self.left_out.append(reason)
            return True
        if seconds > self.seconds:
            reason = f"the time limit of {self.seconds:.3g} s was reached"
        else:
            return False
        self.left_out.append(f"{draw.label}: {reason}")
        return True

    def _wait(
        self, loading: dict[bool, Future[Runner]], engine: Engine, stack: ExitStack
    ) -> dict[bool, Loaded]:
        """Return the variants that could be loaded, with complete ports."""
        loaded = {}
        for optimized, future in loading.items():
            try:
                runner = future.result()
            except NativeError as error:
                self.done.append(Trial("none", optimized, 0, problem=str(error), engine=engine))
                continue
            stack.callback(runner.close)
            pairing = ports.paired(runner.ports, self.subject.plan, named=self.named)
            self.problems.update(dict.fromkeys(pairing.problems))
            if pairing.complete:
                loaded[optimized] = Loaded(runner, pairing, engine)
        return loaded

    def _replace(self, instead: Callable[[], Runner], stack: ExitStack) -> dict[bool, Loaded]:
        """Load the program, not optimized, in torch."""
        try:
            runner = instead()
        except (ConversionError, NativeError) as error:
            self.left_out.append(f"other inputs: torch cannot run the program: {error}")
            return {}
        stack.callback(runner.close)
        pairing = ports.paired(runner.ports, self.subject.plan, named=self.named)
        return {False: Loaded(runner, pairing, Engine.TORCH)} if pairing.complete else {}

    def _reference(self, draw: Draw, steps: int) -> list[ReferenceCall]:
        """Make the calls in torch; return none if torch rejects the inputs."""
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
            return []
        if draw.must_be_finite and not all(_is_finite(call) for call in calls):
            self.left_out.append(f"{draw.label}: torch's results are infinite or NaN")
            return []
        if draw.label != "given" and any(map(_exceeds_32_bits, calls)):
            self.left_out.append(f"{draw.label}: integers of torch's results exceed 32 bits")
            return []
        if draw.label != "given" and undefined_ops(self.subject.exported, draw.leaves(0)):
            self.left_out.append(f"{draw.label}: torch leaves a result undefined on them")
            return []
        return calls

    def _draw(
        self,
        draw: Draw,
        calls: list[ReferenceCall],
        loaded: dict[bool, Loaded],
        pool: Executor,
        seconds: float,
    ) -> None:
        """Run the program, and compare; an error analysis may take so many seconds."""
        jobs = {o: pool.submit(self._execute, v, calls) for o, v in loaded.items()}
        limits = self.limits.of(calls, seconds)
        for optimized, job in jobs.items():
            variant = loaded[optimized]
            try:
                results = job.result()
            except NativeError as error:
                self.done.append(
                    Trial(draw.label, optimized, 0, problem=str(error), engine=variant.engine)
                )
                if not variant.runner.alive:
                    del loaded[optimized]
                continue
            self.slowest = max(self.slowest, results.seconds / len(calls))
            try:
                self._compare(draw, results, limits, variant, optimized)
            except TooSlowError:
                limit = f"the time limit of {self.seconds:.3g} s"
                reason = f"{draw.label}: an error analysis would exceed {limit}"
                self.left_out += [reason] if reason not in self.left_out else []

    def _execute(self, variant: Loaded, calls: list[ReferenceCall]) -> Results:
        """Make the calls; each continues from the states of the program's last call."""
        watch, pairing = Stopwatch(), variant.pairing
        states = _arrays(pairing.states, calls[0].states_before)
        made = []
        for call in calls:
            raw, states = variant.runner.call(_arrays(pairing.inputs, self._inputs(call)), states)
            made.append((raw, states))
        return Results(made, watch.seconds)

    def _compare(
        self,
        draw: Draw,
        results: Results,
        limits: list[CallLimits],
        variant: Loaded,
        optimized: bool,
    ) -> None:
        pairing = variant.pairing
        for limit, (raw, states) in zip(limits, results.calls, strict=True):
            got = {n: tensor(raw[n]) for n in pairing.outputs}
            after = {n: tensor(states[n]) for n in pairing.states}
            trial = Trial(
                draw.label,
                optimized,
                limit.step,
                limit.compare(pairing.outputs, got),
                limit.compare(pairing.states, after, states=True),
                engine=variant.engine,
            )
            extreme = self._at_extremes(limit.call, trial) if trial.wrong else ()
            if extreme and draw.label != "given":
                trial = replace(trial, at_extremes=extreme)
            self.done.append(trial)
            if trial.at_extremes:
                return  # later calls start from another state
            if not trial.ok:
                want = dict(zip(pairing.outputs, limit.call.outputs, strict=True))
                allowed = dict(zip(pairing.outputs, limit.outputs, strict=True))
                self.problems.update(dict.fromkeys(ports.swapped(got, want, allowed)))
                self.failure = self.failure or Failure(draw, limit.call, trial, limit, extreme)
                return  # later calls started from a wrong state
            if not draw.is_edge:
                self._doubt(draw, trial, limit, got | after)

    def _at_extremes(self, call: ReferenceCall, trial: Trial) -> tuple[str, ...]:
        """Return the ops that may differ in a call because they compute with extreme numbers."""
        plan = self.subject.plan
        outputs = zip((o.value for o in plan.outputs), trial.outputs, strict=True)
        states = zip((s.written for s in plan.states), trial.states, strict=True)
        wrong = [node for node, error in (*outputs, *states) if not error.ok]
        if not self.inexact or not all(isinstance(node, fx.Node) for node in wrong):
            return ()
        try:
            return ops_at_extremes(self.subject, call, self.inexact, wrong)
        except (RuntimeError, NotImplementedError):  # a custom op whose kernel runs elsewhere
            return ()

    def _doubt(
        self, draw: Draw, trial: Trial, limit: CallLimits, got: dict[str, torch.Tensor]
    ) -> None:
        """Note the outputs and states that are right only because their limits are too wide."""
        for errors, states in ((trial.outputs, False), (trial.states, True)):
            for at, error in enumerate(errors):
                if error.name in self.unjudged:
                    continue
                value = got[error.name]
                found = limit.unjudged(error, value, at, draw.label, states=states)
                if found is not None:
                    self.unjudged[error.name] = found

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


class _Inline(Executor):
    """Runs each job at once, in this thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _is_finite(call: ReferenceCall) -> bool:
    values = (v for v in (*call.outputs, *call.states) if v.is_floating_point() or v.is_complex())
    return all(bool(widen(v).isfinite().all()) for v in values)


def _exceeds_32_bits(call: ReferenceCall) -> bool:
    return any(beyond_32_bits(v) is not None for v in (*call.outputs, *call.states))


def _arrays(names: list[str], values: list[Any]) -> Arrays:
    return {name: array(value) for name, value in zip(names, values, strict=True)}
