"""Run all mutants of one unit: build, decide whether each matters, and ask the judge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from coreai_torch import to_torch
from coreai_torch.errors import ConversionError, RunError
from coreai_torch.lowering.program import Staged, build
from coreai_torch.verification import Subject

from . import judging, truth
from .kinds import KINDS, Kind, NotApplicableError
from .programs import Loaded, Site, Unit, load
from .sabotage import registry_with

CAUGHT, MISSED, FALSE_ALARM = "caught", "missed", "false alarm"
HARMLESS, UNBUILT, NOT_APPLICABLE = "harmless", "not buildable", "not applicable"
HONEST, BROKEN = "accepted", "broken"
GIVEN = "given"  # the inputs that found it, and the least that the quick check runs


@dataclass(frozen=True)
class Outcome:
    """What happened to one mutant; the kind `none` is the unmutated program."""

    unit: str
    op: str
    node: str
    depth: float
    kind: str
    outcome: str
    detail: str = ""
    seconds: float = 0.0


def run(unit: Unit) -> Iterator[Outcome]:
    """Yield the outcome of the unmutated program, then of each mutant."""
    began = time.monotonic()
    try:
        loaded = load(unit)
        original = Run(loaded, None, None)
        outcome = HONEST
        verdict = original.judge()
        alarms = _failures(verdict) | {(u.inputs, 0, u.name) for u in verdict.unjudged}
        if not verdict.ok:
            outcome = FALSE_ALARM
        detail = "" if verdict.ok else str(verdict)[:600]
    except Exception as error:
        yield Outcome(unit.name, unit.op, "", 0.0, "none", BROKEN, _line(error))
        return
    op = unit.op or unit.model
    yield Outcome(unit.name, op, "", 0.0, "none", outcome, detail, time.monotonic() - began)
    for site in loaded.sites:
        for kind in KINDS.values():
            began = time.monotonic()
            result, detail = _mutant(loaded, original, site, kind, alarms)
            seconds = round(time.monotonic() - began, 3)
            yield Outcome(
                unit.name, site.op, site.node, site.depth, kind.name, result, detail, seconds
            )


def _failures(verdict: Any) -> set[tuple[str, int, str]]:
    """Return the results that differ, by inputs and call."""
    return {
        (trial.inputs, trial.step, error.name)
        for trial in verdict.trials
        for error in (*trial.outputs, *trial.states)
        if not error.ok
    }


def _mutant(
    loaded: Loaded, original: Run, site: Site, kind: Kind, alarms: set[tuple[str, int, str]]
) -> tuple[str, str]:
    try:
        mutant = Run(loaded, site, kind)
    except NotApplicableError as error:
        return NOT_APPLICABLE, str(error)
    except ConversionError as error:
        if isinstance(error.__cause__, NotApplicableError):
            return NOT_APPLICABLE, str(error.__cause__)
        return UNBUILT, _line(error)
    except Exception as error:  # the IR rejects a result of another type
        return UNBUILT, _line(error)
    if not mutant.was_spoiled:
        return NOT_APPLICABLE, "the op was folded"
    if not _matters(mutant, original):
        return HARMLESS, ""
    try:
        verdict = mutant.judge()
    except Exception as error:
        return CAUGHT, f"raised {_line(error)}"
    # A result that differs without the mutant, too, does not count.
    found = [inputs for inputs, _, _ in _failures(verdict) - alarms]
    found += [t.inputs for t in verdict.trials if t.problem]
    if found:
        return CAUGHT, GIVEN if GIVEN in found else ""
    if verdict.unjudged and not alarms:  # the unmutated program was judged
        return CAUGHT, "not judged"
    worst = max(verdict.worst().values(), key=lambda e: e.max_rel, default=None)
    return MISSED, "" if worst is None else str(worst)


def _matters(mutant: Run, original: Run) -> bool:
    """Return whether any of the inputs shows the mutant; one that fails to run matters."""
    try:
        outputs = mutant.outputs()
    except RunError:
        return True
    rows = zip(outputs, original.outputs(), original.eager, original.wide, strict=True)
    return any(truth.is_significant(*row) for row in rows)


class Run:
    """One program, mutated or not, and its results on the inputs that decide."""

    def __init__(self, loaded: Loaded, site: Site | None, kind: Kind | None) -> None:
        self._loaded = loaded
        captured = loaded.captured
        name = site.op if site else loaded.sites[0].op if loaded.sites else "aten::add.Tensor"
        registry, entry = registry_with(name, kind, site.node if site else "")
        staged = Staged("main", captured.program, captured.plan)
        self._program = build([staged], registry, debug=True, on_node=lambda: None)
        self.was_spoiled = entry.calls > 0
        self._module = to_torch(self._program)
        self._results: list[list[torch.Tensor]] | None = None
        if kind is None:
            self._drop_rejected_inputs()
            count = range(len(loaded.inputs))
            self.eager = [loaded.eager(i) for i in count]
            self.wide = [loaded.wide(i) for i in count]

    def _drop_rejected_inputs(self) -> None:
        """Leave out random inputs that torch or the program rejects, such as wrong indices."""
        kept = []
        for number, given in enumerate(self._loaded.others, 1):
            try:
                self._loaded.eager(number)
                self._outputs(*given)
            except Exception:
                continue
            kept.append(given)
        self._loaded.others = kept

    def judge(self) -> Any:
        """Return the verdict of `verify`."""
        loaded = self._loaded
        captured = loaded.captured
        subject = Subject(captured.program, captured.plan, captured.reference)
        leaves = subject.leaves(loaded.args, loaded.kwargs)
        return judging.judge(subject, self._program, leaves)

    def outputs(self) -> list[list[torch.Tensor]]:
        """Return the outputs for each input, by the interpreter."""
        if self._results is None:
            self._results = [self._outputs(*given) for given in self._loaded.inputs]
        return self._results

    def _outputs(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        captured = self._loaded.captured
        subject = Subject(captured.program, captured.plan, captured.reference)
        leaves = subject.leaves(args, kwargs)
        places = {node: at for at, node in enumerate(subject.arguments)}
        feeds = {i.name: leaves[places[i.node]] for i in captured.plan.inputs}
        states = {
            s.name: v.clone()
            for s, v in zip(captured.plan.states, subject._states(leaves), strict=True)
        }
        function = self._module.function("main")
        return list(function(feeds, state=states if states else None).values())


def _line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]
