"""Fit a model into a size or an error: pick schemes from a sensitivity table and check them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ConversionError
from .applying import choose_scheme, restricted
from .compression_report import CompressionReport
from .measuring import (
    CANDIDATES,
    Meter,
    Metric,
    Sensitivity,
    check_model,
    compressed_value,
    replaced,
    sensitivity,
)
from .picking import (
    LAYER_BYTES,
    PROGRAM_BYTES,
    Choice,
    Option,
    check_reached,
    options,
    pick,
)
from .selection import Plan, Rules
from .specs import Spec, to_spec
from .weights import Weight, find_weights

_TRIES = 30  # of smaller limits, if weights together have a larger error than expected


@dataclass(frozen=True)
class Goal:
    """What to reach, and how the error is measured."""

    target_bytes: int | None
    max_error: float | None
    inputs: Any
    metric: Metric | None
    table: Sensitivity | str | Path | None

    def check(self) -> None:
        """Raise if the arguments do not fit together."""
        if self.target_bytes is not None and self.max_error is not None:
            raise ConversionError(
                "target_bytes and max_error exclude each other\n  try   pass one of them"
            )
        measured = self.inputs is not None or self.metric is not None
        if not measured and (self.table is None or self.max_error is not None):
            raise ConversionError(
                "the error of the model cannot be measured\n"
                "  try   pass calibration=[(x1,), (x2,)], inputs of the model, or metric="
            )


@dataclass(frozen=True)
class Limits:
    """The weights that may be compressed."""

    only: Rules
    skip: Rules
    least: int
    block_size: int | None = None  # used for candidates that name no block size
    scaled_inputs: bool = False  # AWQ stores a factor for each input


@dataclass(frozen=True)
class Fitted:
    """The plan that was found, and the meter of its error."""

    plan: Plan
    meter: Meter | None

    def measured(self, report: CompressionReport) -> CompressionReport:
        """Return the report with the error of the compressed model."""
        if self.meter is None:
            return report
        return replace(report, error=self.meter.error())


def fit(model: nn.Module, goal: Goal, scheme: Any, limits: Limits) -> Fitted:
    """Pick a scheme per weight that reaches the goal."""
    goal.check()
    specs = _candidates(scheme, limits.block_size)
    weights = find_weights(model)
    inputs = None if goal.metric is not None else goal.inputs
    meter = None
    if inputs is not None or goal.metric is not None:
        meter = Meter(model, inputs, goal.metric)
    table = _table(model, goal, specs, weights, limits, inputs)
    table = _allowed(model, table, specs, weights, limits)
    sizes = {w.name: w.value.numel() * w.value.element_size() for w in weights}
    choices = options(table, sizes)
    if goal.target_bytes is not None:
        available = goal.target_bytes - _other_bytes(model, weights, limits)
        choice = pick(choices, target_bytes=available)
        check_reached(choice, available, goal.target_bytes)
    else:
        assert meter is not None
        assert goal.max_error is not None
        choice = _within_error(weights, choices, table, meter, goal.max_error)
    return Fitted(_plan(choice), meter)


def _candidates(scheme: Any, block_size: int | None) -> list[Spec]:
    if scheme is None:
        return [to_spec(name) for name in CANDIDATES]
    listed = scheme if isinstance(scheme, list | tuple) else [scheme]
    return [to_spec(one, block_size) for one in listed]


def _table(
    model: nn.Module,
    goal: Goal,
    specs: Sequence[Spec],
    weights: Sequence[Weight],
    limits: Limits,
    inputs: Any,
) -> Sensitivity:
    """Return the given table, the one of the file, or measure one."""
    if isinstance(goal.table, Sensitivity):
        check_model(goal.table, weights, "the sensitivity table")
        return goal.table
    if inputs is None and goal.metric is None:
        assert goal.table is not None
        table = Sensitivity.load(goal.table)
        check_model(table, weights, str(goal.table))
        return table
    return sensitivity(
        model,
        inputs,
        metric=goal.metric,
        schemes=specs,
        only=limits.only,
        skip=limits.skip,
        least=limits.least,
        path=goal.table,
    )


def _allowed(
    model: nn.Module,
    table: Sensitivity,
    specs: Sequence[Spec],
    weights: Sequence[Weight],
    limits: Limits,
) -> Sensitivity:
    """Return the rows whose schemes are candidates and whose weights may be compressed."""
    chosen: dict[str, set[str]] = {}
    for spec in specs:
        plan = restricted(model, _constant(spec), limits.only, limits.skip)
        found = {w.name for w in weights if choose_scheme(w, plan, limits.least)[0]}
        chosen[str(spec)] = found
    rows = [row for row in table.rows if row.weight in chosen.get(row.scheme, ())]
    return replace(table, rows=rows)


def _constant(spec: Spec) -> Plan:
    return lambda weight: (spec, "")


def _other_bytes(model: nn.Module, weights: Sequence[Weight], limits: Limits) -> int:
    """Estimate the bytes of the asset besides the weights."""
    counted = {id(weight.value) for weight in weights}
    others = {id(t): t for t in (*model.parameters(), *model.buffers()) if id(t) not in counted}
    size = sum(t.numel() * t.element_size() for t in others.values())
    if limits.scaled_inputs:
        size += sum(4 * w.value.shape[w.axes[1]] for w in weights if w.axes is not None)
    return int(size) + PROGRAM_BYTES + LAYER_BYTES * len(weights)


def _within_error(
    weights: Sequence[Weight],
    choices: dict[str, list[Option]],
    table: Sensitivity,
    meter: Meter,
    max_error: float,
) -> Choice:
    """Return the smallest choice whose measured error is within the limit."""
    limit = max_error
    for _ in range(_TRIES):
        choice = pick(choices, max_cost=limit if table.additive else limit**2)
        error = _error(weights, choice, meter)
        if error <= max_error:
            return choice
        limit *= min(0.9, max_error / error)
    return {name: listed[0] for name, listed in choices.items()}


def _error(weights: Sequence[Weight], choice: Choice, meter: Meter) -> float:
    """Return the error of the model with all chosen schemes together."""
    plan = _plan(choice)
    chosen = [(weight, plan(weight)[0]) for weight in weights]
    values = [(w, compressed_value(w, spec)[0]) for w, spec in chosen if spec is not None]
    if not values:
        return 0.0
    with replaced(values):
        return meter.error()


def _plan(choice: Choice) -> Plan:
    def plan(weight: Weight) -> tuple[Spec | None, str]:
        option = choice.get(weight.name)
        if option is None or option.row is None:
            return None, "unchanged: within the target without compression"
        return to_spec(option.row.scheme), ""

    return plan
