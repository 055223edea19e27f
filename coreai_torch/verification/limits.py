"""The error that each output and state of a call may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from ..ir.types import narrow
from ..numerics.compare import Allowed, as_accurate, compare
from ..numerics.error_analysis import ENOUGH, Analysis, Lanes
from ..numerics.one_op import allowed_of
from ..numerics.output_error import OutputError
from ..numerics.tolerance import graph_limits
from .float64_reference import ExactCall, run_exact
from .subject import ReferenceCall, Subject

_SLOW = 0.1  # seconds of a call in torch from which on there are few noisy runs
_FEW = 2
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


@dataclass
class CallLimits:
    """What the results of one call are compared with, and how far they may be."""

    subject: Subject
    calls: Sequence[ReferenceCall]
    step: int
    outputs: list[Allowed]
    states: list[Allowed]
    _exact: list[ExactCall | None] = field(default_factory=list, repr=False)  # empty: unknown

    @property
    def call(self) -> ReferenceCall:
        """The call in torch."""
        return self.calls[self.step]

    def compare(
        self, names: Sequence[str], got: Mapping[str, torch.Tensor], *, states: bool = False
    ) -> tuple[OutputError, ...]:
        """Compare the outputs, or the states, in torch's order."""
        want = self.call.states if states else self.call.outputs
        allowed = self.states if states else self.outputs
        errors = []
        for at, name in enumerate(names):
            error = compare(name, got[name], want[at], allowed[at])
            if not error.ok and not error.problem:
                error = self._in_float64(error, got[name], want[at], allowed[at], at, states)
            errors.append(error)
        return tuple(errors)

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

    def of(self, calls: Sequence[ReferenceCall]) -> list[CallLimits]:
        """Return the limits of consecutive calls on one state."""
        if self.tolerance is None and not self.problem:
            try:
                runs = ENOUGH if max(call.seconds for call in calls) < _SLOW else _FEW
                return self._analyzed(calls, runs)
            except Exception as error:  # an op that torch cannot run on other operands
                self.problem = f"{type(error).__name__}: {error}".splitlines()[0]
        return [
            CallLimits(self.subject, calls, step, self._tabled(c.outputs), self._tabled(c.states))
            for step, c in enumerate(calls)
        ]

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

    def _analyzed(self, calls: Sequence[ReferenceCall], runs: int) -> list[CallLimits]:
        subject, plan = self.subject, self.subject.plan
        analysis = Analysis(subject.exported.graph_module, runs, device=self.device)
        found: dict[fx.Node, Lanes] = {}
        limits = []
        for step, call in enumerate(calls):
            feed = feed_of(subject, call)
            if step:  # states keep the errors of earlier calls
                feed.update((s.node, found[s.written]) for s in plan.states)
            found = analysis.run(feed, result_nodes(subject))
            outputs = [_allowed(found, o.value, w) for o, w in _zip(plan.outputs, call.outputs)]
            states = [_allowed(found, s.written, w) for s, w in _zip(plan.states, call.states)]
            limits.append(CallLimits(subject, calls, step, outputs, states))
        return limits


def _zip(ports: Sequence[Any], values: Sequence[torch.Tensor]) -> Any:
    return zip(ports, values, strict=True)


def _allowed(found: Mapping[fx.Node, Lanes], value: Any, want: torch.Tensor) -> Allowed:
    if isinstance(value, fx.Node):
        return allowed_of(found[value], want)
    return Allowed(torch.zeros(want.shape))
