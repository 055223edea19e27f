"""The error that each output and state of a call may have."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx

from ..capture.narrowed_floats import losing_ops
from ..ir.types import narrow
from ..numerics.compare import Allowed, as_accurate, compare
from ..numerics.error_analysis import ENOUGH, Analysis, Lanes
from ..numerics.judged import (
    NARROWED,
    WIDE,
    decisive,
    differs_visibly,
    is_as_near,
    is_lost,
    is_suspect,
)
from ..numerics.one_op import allowed_of
from ..numerics.output_error import OutputError
from ..numerics.strict import StrictLimit, computed_nodes
from ..numerics.tolerance import graph_limits
from ..numerics.tolerance import limits as table_limits
from .float64_reference import ExactCall, run_exact
from .subject import ReferenceCall, Subject
from .unjudged import Unjudged, explained, losing_op

_SLOW = 0.1  # seconds of a call in torch from which on there are few noisy runs
_FEW = 2
_ANALYSIS = 10.0  # times as long as a call
_LARGE = 4 << 30  # bytes of weights that are not copied to float64
Feed = dict[fx.Node, Any]
NodeLimits = dict[fx.Node, Allowed]


def feed_of(subject: Subject, call: ReferenceCall) -> Feed:
    """Return the values of all placeholders of the graph in one call."""
    plan = subject.plan
    feed: Feed = dict(plan.folded)
    feed.update((node, value) for node, (_, value) in plan.constants.items())
    feed.update(zip(subject.arguments, call.leaves, strict=True))
    feed.update((s.node, v) for s, v in zip(plan.states, call.states_before, strict=True))
    return feed


class TooSlowError(Exception):
    """A result near that of torch needs an error analysis, which would exceed the time limit."""


@dataclass(frozen=True)
class ResultLimits:
    """The limits of the results of one call."""

    outputs: list[Allowed]
    states: list[Allowed]
    is_analyzed: bool = False  # else the limits are those of a table, or of the user


@dataclass(frozen=True)
class StrictLimits:
    """Limits of the results of one call that need no analysis: what is within them is right."""

    outputs: list[StrictLimit]
    states: list[StrictLimit]


@dataclass
class CallLimits:
    """What the results of one call are compared with, and how far they may be.

    The limits of the error analysis are found when a result is not right without them.
    """

    subject: Subject
    calls: Sequence[ReferenceCall]
    step: int
    find: Callable[[], list[ResultLimits]] = field(repr=False)
    strict: StrictLimits | None = field(default=None, repr=False)
    find_precise: Callable[[], list[ResultLimits]] | None = field(default=None, repr=False)
    device: str = "cpu"
    seconds: float = math.inf  # for an analysis
    _exact: list[ExactCall | None] = field(default_factory=list, repr=False)  # empty: unknown
    _known: dict[tuple[int, bool], tuple[torch.Tensor, OutputError]] = field(
        default_factory=dict, repr=False
    )  # the last result of each output or state

    @property
    def call(self) -> ReferenceCall:
        """The call in torch."""
        return self.calls[self.step]

    @property
    def outputs(self) -> list[Allowed]:
        """How far each element of each output may be."""
        return self.find()[self.step].outputs

    @property
    def states(self) -> list[Allowed]:
        """How far each element of each state may be."""
        return self.find()[self.step].states

    def compare(
        self, names: Sequence[str], got: Mapping[str, torch.Tensor], *, states: bool = False
    ) -> tuple[OutputError, ...]:
        """Compare the outputs, or the states, in torch's order."""
        return tuple(self._compare(name, got[name], at, states) for at, name in enumerate(names))

    def _compare(self, name: str, got: torch.Tensor, at: int, states: bool) -> OutputError:
        """Compare a result, unless the last variant of the program gave the same numbers."""
        last, error = self._known.get((at, states), (None, None))
        if error is None or last is None or last.dtype != got.dtype or not torch.equal(last, got):
            error = self._judge(name, got, at, states)
            self._known[at, states] = got, error
        return replace(error, name=name)

    def _judge(self, name: str, got: torch.Tensor, at: int, states: bool) -> OutputError:
        want = (self.call.states if states else self.call.outputs)[at]
        if self.strict is not None:
            within = (self.strict.states if states else self.strict.outputs)[at]
            if (accepting := within.accepting(got, want)) is not None:
                return compare(name, got, want, accepting)
            if _ANALYSIS * self.call.seconds > self.seconds and _is_near(got, want):
                raise TooSlowError
        allowed = (self.states if states else self.outputs)[at]
        error = compare(name, got, want, allowed)
        if error.ok or error.problem:
            return error
        return self._in_float64(error, got, want, allowed, at, states)

    def unjudged(
        self, error: OutputError, got: torch.Tensor, at: int, inputs: str, *, states: bool = False
    ) -> Unjudged | None:
        """Return why the limits are too wide to judge a result that they accept, if they are."""
        want = (self.call.states if states else self.call.outputs)[at]
        want = want.to(narrow(want.dtype))
        if not error.ok or (self.find_precise is None and not differs_visibly(got, want)):
            return None  # no limit is too wide for an error that needs none
        allowed = (self.states if states else self.outputs)[at]
        if not self.find()[self.step].is_analyzed or not is_suspect(want, allowed):
            return None
        if self._is_narrowed(got, want, allowed, at, states):
            narrowed = True
        elif self._is_torch_nearer(got, want, allowed, at, states):
            narrowed = False
        else:
            return None
        plan = self.subject.plan
        result = plan.states[at].written if states else plan.outputs[at].value
        losing = None
        if isinstance(result, fx.Node):
            graph, feed = self.subject.exported.graph_module, feed_of(self.subject, self.call)
            share = NARROWED if narrowed else WIDE
            losing = losing_op(graph, feed, result, share=share, device=self.device)
        return explained(error, want, allowed, inputs=inputs, narrowed=narrowed, losing=losing)

    def _is_narrowed(
        self, got: torch.Tensor, want: torch.Tensor, allowed: Allowed, at: int, states: bool
    ) -> bool:
        """Return whether limits are too wide because 64 bits become 32."""
        if self.find_precise is None:
            return False
        others = self.find_precise()[self.step]
        if not is_lost(got, want, allowed, (others.states if states else others.outputs)[at]):
            return False
        if want.dtype not in (torch.float16, torch.bfloat16):
            return True
        # Half precision widens limits more than narrowing does: torch must be nearer to float64.
        return self._is_torch_nearer(got, want, allowed, at, states)

    def _is_torch_nearer(
        self, got: torch.Tensor, want: torch.Tensor, allowed: Allowed, at: int, states: bool
    ) -> bool:
        """Return whether torch is nearer to float64 where limits are as large as the result."""
        if not decisive(got, want, allowed).any():
            return False
        call = self._exact_call()
        if call is None:
            return True
        exact = (call.states if states else call.outputs)[at]
        return exact.shape != want.shape or not is_as_near(got, want, exact, allowed)

    def _in_float64(
        self,
        error: OutputError,
        got: torch.Tensor,
        want: torch.Tensor,
        allowed: Allowed,
        at: int,
        states: bool,
    ) -> OutputError:
        """Compare again: right is also what is as near to the float64 result as torch's."""
        call = self._exact_call()
        if call is None:
            return error
        exact = (call.states if states else call.outputs)[at]
        if exact.shape != want.shape:
            return error
        return compare(error.name, got, want, as_accurate(got, want, exact, allowed))

    def _exact_call(self) -> ExactCall | None:
        """Return the results of the model in float64, or None if it does not run in float64."""
        if not self._exact:
            weights = (value.nbytes for _, value in self.subject.plan.constants.values())
            too_large = sum(weights) > _LARGE
            calls = self.calls[: self.step + 1]
            self._exact.append(None if too_large else run_exact(self.subject, calls))
        return self._exact[0]


def _is_near(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Return whether a result is within the limits of the table of dtypes."""
    want = want.to(narrow(want.dtype))
    return compare("", got, want, table_limits()).ok


def result_nodes(subject: Subject) -> list[fx.Node]:
    """Return the nodes of the outputs and of the written states."""
    values = [*(o.value for o in subject.plan.outputs), *(s.written for s in subject.plan.states)]
    return [node for node in values if isinstance(node, fx.Node)]


@dataclass
class ErrorLimits:
    """Finds the limits of calls; a `tolerance` of the user replaces the analysis."""

    subject: Subject
    tolerance: float | None = None
    device: str = "cpu"
    problem: str = ""  # why the analysis failed, if it did

    def of(self, calls: Sequence[ReferenceCall], seconds: float = math.inf) -> list[CallLimits]:
        """Return the limits of consecutive calls on one state.

        A comparison raises `TooSlowError` if it needs an analysis that takes more `seconds`, and if
        the result is near torch's.
        """
        find = functools.cache(lambda: self._limits(calls))
        precise = strict = None
        if self.tolerance is None and self._loses_digits:  # equal numbers may have lost digits too
            precise = functools.cache(lambda: self._analyzed(calls, narrows=False))
        limits = []
        for step, call in enumerate(calls):
            if self.tolerance is None and precise is None:
                strict = self._strict(call)
            own = CallLimits(self.subject, calls, step, find, strict, precise, self.device, seconds)
            limits.append(own)
        return limits

    def _limits(self, calls: Sequence[ReferenceCall]) -> list[ResultLimits]:
        """Analyze the errors of consecutive calls, or look their limits up in a table."""
        if self.tolerance is None and not self.problem:
            try:
                return self._analyzed(calls)
            except Exception as error:  # an op that torch cannot run on other operands
                self.problem = f"{type(error).__name__}: {error}".splitlines()[0]
        return [ResultLimits(self._tabled(c.outputs), self._tabled(c.states)) for c in calls]

    @functools.cached_property
    def _loses_digits(self) -> bool:
        """Whether narrowing may change results; not tables that are computed before it."""
        return bool(losing_ops(self.subject.exported))

    @functools.cached_property
    def _computed(self) -> Mapping[fx.Node, int]:
        return computed_nodes(self.subject.exported.graph)

    def _strict(self, call: ReferenceCall) -> StrictLimits:
        """Return limits that need no analysis."""
        plan, chains = self.subject.plan, self._computed
        return StrictLimits(
            [
                StrictLimit.of(w, _chain(chains, o.value))
                for o, w in _zip(plan.outputs, call.outputs)
            ],
            [
                StrictLimit.of(w, _chain(chains, s.written))
                for s, w in _zip(plan.states, call.states)
            ],
        )

    def of_nodes(self, call: ReferenceCall, want: Mapping[fx.Node, torch.Tensor]) -> NodeLimits:
        """Return the limits of intermediate results of one call."""
        if self.tolerance is None and not self.problem:
            analysis = Analysis(self.subject.exported.graph_module, ENOUGH, device=self.device)
            feed = feed_of(self.subject, call)
            return analysis.run(feed, want, lambda node, lanes: allowed_of(lanes, want[node]))
        return dict(zip(want, self._tabled(list(want.values())), strict=True))

    def _tabled(self, want: Sequence[torch.Tensor]) -> list[Allowed]:
        limits = graph_limits(self.subject.exported.graph)
        if self.tolerance is not None:
            limits = dict.fromkeys(limits, self.tolerance)
        return [Allowed.by_table(w.to(narrow(w.dtype)), limits) for w in want]

    def _analyzed(
        self, calls: Sequence[ReferenceCall], *, narrows: bool = True
    ) -> list[ResultLimits]:
        subject, plan = self.subject, self.subject.plan
        runs = ENOUGH if max(call.seconds for call in calls) < _SLOW else _FEW
        graph = subject.exported.graph_module
        analysis = Analysis(graph, runs, device=self.device, narrows=narrows)
        found: dict[fx.Node, Lanes] = {}
        limits = []
        for step, call in enumerate(calls):
            feed = feed_of(subject, call)
            if step:  # states keep the errors of earlier calls
                feed.update((s.node, found[s.written]) for s in plan.states)
            found = analysis.run(feed, result_nodes(subject))
            outputs = [_allowed(found, o.value, w) for o, w in _zip(plan.outputs, call.outputs)]
            states = [_allowed(found, s.written, w) for s, w in _zip(plan.states, call.states)]
            limits.append(ResultLimits(outputs, states, is_analyzed=True))
        return limits


def _zip(ports: Sequence[Any], values: Sequence[torch.Tensor]) -> Any:
    return zip(ports, values, strict=True)


def _chain(chains: Mapping[fx.Node, int], value: Any) -> int:
    return chains.get(value, 0) if isinstance(value, fx.Node) else 0


def _allowed(found: Mapping[fx.Node, Lanes], value: Any, want: torch.Tensor) -> Allowed:
    if isinstance(value, fx.Node):
        return allowed_of(found[value], want)
    return Allowed(torch.zeros(want.shape))
