"""Units of work of the sweep with all rewrites: a batch of op cases, or a model of the zoo."""

from __future__ import annotations

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS / "ops"), str(_TESTS / "models")]
TARGET = "any"
ONLY: list[str] = []  # the ids of the rewrites to apply; empty means all


@dataclass(frozen=True)
class Unit:
    """Cases of ops, or a model."""

    kind: str  # "static", "dynamic" or "model"
    name: str
    members: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    crashed: bool = False  # with rewrites; it runs again without them

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}"

    def without(self, done: set[str]) -> Unit | None:
        """Return the unit without the cases or the model that `done` names; None if it is empty."""
        if not self.members:
            return None if self.key in done else self
        left = tuple(m for m in self.members if f"{self.kind} {m[0]}" not in done)
        return replace(self, members=left) if left else None

    def after_crash(self) -> list[Unit]:
        """Return a unit for each case; a single one runs without rewrites, but only once."""
        if len(self.members) < 2:
            return [] if self.crashed else [replace(self, crashed=True)]
        return [Unit(self.kind, id_, ((id_, *rest),)) for id_, *rest in self.members]


@dataclass
class Outcome:
    """The verdicts of a unit: `passed`, `failed` or `refused` by case or model."""

    kind: str
    name: str
    verdicts: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # the message of each failure
    rewrites: dict[str, int] = field(default_factory=dict)  # places by id
    seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}"


def all_units(kinds: tuple[str, ...]) -> list[Unit]:
    """Return the units of the given kinds; long ones first."""
    units: list[Unit] = []
    if "model" in kinds:
        import json

        import zoo

        known = json.loads((_TESTS / "models" / "verdicts.json").read_text())["models"]
        names = sorted(zoo.ROWS, key=lambda name: -known.get(name, {}).get("cpu", 0.0))
        units += [Unit("model", name) for name in names]
    for kind in ("dynamic", "static"):
        if kind in kinds:
            units += _case_units(kind)
    return units


def _case_units(kind: str) -> list[Unit]:
    from batches import GROUPED

    groups = defaultdict(list)
    for param in GROUPED:
        entry, case, sizes, batch = param.values
        if sizes == kind and not _is_skipped(param):
            groups[batch].append((param.id, entry, case))
    return [Unit(kind, name, tuple(members)) for name, members in groups.items()]


def _is_skipped(param: Any) -> bool:
    import version_faults

    skips = (m for m in param.marks if m.name == "skipif")
    name = f"test_cases.py::test_case[{param.id}]"
    return any(m.args[0] for m in skips) or any(r.applies(name) for r in version_faults.ROWS)


def run(unit: Unit) -> dict[str, Any]:
    """Judge a unit with all rewrites; what fails runs again without them."""
    import rewrite_everything
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    outcome = Outcome(unit.kind, unit.name)
    start = time.perf_counter()
    with rewrite_everything.counted(None if unit.crashed else TARGET, ONLY) as count:
        judge = _judge_model if unit.kind == "model" else _judge_cases
        judge(unit, outcome)
    outcome.rewrites = dict(sorted(count.items()))
    if unit.crashed:
        _blame(outcome)
    outcome.seconds = round(time.perf_counter() - start, 2)
    return asdict(outcome)


def _blame(outcome: Outcome) -> None:
    """Turn the outcome without rewrites into that of the crash with them."""
    for name in outcome.verdicts:
        known = "fails" if name in outcome.failures else "passes"
        outcome.verdicts[name] = "failed"
        outcome.failures[name] = f"{known} without rewrites: crash"


def _judge_cases(unit: Unit, outcome: Outcome) -> None:
    import batches
    import case_runner

    batch = batches.Batch()
    if unit.kind == "static":
        batch.run([(entry, case) for _, entry, case in unit.members])
    for id_, entry, case in unit.members:
        if unit.kind == "static" and batch.accepts(entry, case):
            outcome.verdicts[id_] = "passed"
        else:
            dynamic = unit.kind == "dynamic"
            _record(
                outcome,
                id_,
                lambda e=entry, c=case, d=dynamic: case_runner.check(e, c, dynamic=d),
            )


def _judge_model(unit: Unit, outcome: Outcome) -> None:
    import zoo
    from zoo.judge import judge

    refused = zoo.ROWS[unit.name].refused

    def check() -> None:
        verdict = judge(unit.name)
        assert bool(refused) == bool(verdict.failure), verdict.failure or "it converts"
        assert refused in verdict.failure, verdict.failure

    _record(outcome, unit.name, check)
    if refused and outcome.verdicts[unit.name] == "passed":
        outcome.verdicts[unit.name] = "refused"


def _record(outcome: Outcome, name: str, check: Callable[[], None]) -> None:
    failure = _failure(check)
    outcome.verdicts[name] = "failed" if failure else "passed"
    if failure:
        outcome.failures[name] = f"{_without_rewrites(check)}: {failure[:1500]}"


def _without_rewrites(check: Callable[[], None]) -> str:
    from coreai_torch.targets import rewrites

    chosen = rewrites.chosen
    rewrites.chosen = lambda target, **options: ()
    try:
        return "fails without rewrites too" if _failure(check) else "passes without rewrites"
    finally:
        rewrites.chosen = chosen


def _failure(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
