"""Search a program for constructs that are known to fail on devices."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from ... import errors
from ...asset.metadata import SIZES, annotation
from ...asset.reading import Program, Source, read
from .rule import SEVERITIES, UNITS, Rule
from .rules import RULES
from .view import ProgramView, Ranges

_READ = 1 << 16  # larger constants are weights; the rules look at masks, epsilons and scales


@dataclass(frozen=True)
class Finding:
    """A rule that a program breaks, with the first place and the number of places."""

    code: str
    severity: str  # "error", "warning" or "info"
    problem: str
    hint: str  # what to do
    count: int
    place: str  # of the first
    units: tuple[str, ...] = ()
    source: str = ""
    rewrite: str = ""


def lint(
    source: Source, *, target: str | Collection[str] = UNITS, os: str | None = None
) -> list[Finding]:
    """Return what is known to fail on devices, errors first.

    Args:
        source: a program, an asset, or the path of one.
        target: the compute units that the asset runs on: `"gpu"`, `"neural_engine"`, `"cpu"`,
            several of them, or `"any"`. Rules about other units are skipped.
        os: the version of the operating system, as `"27.0"`. Rules about other versions are
            skipped; without it all rules apply.
    """
    rules = rules_for(target, os)
    return lint_program(read(source, largest=_READ), rules, annotation(source, SIZES))


def lint_program(
    program: Program, rules: Collection[Rule] = RULES, ranges: Ranges | None = None
) -> list[Finding]:
    """Apply rules to a program that was already read.

    `ranges` is the entry "coreai_torch.sizes" of the metadata: the ranges of dynamic sizes.
    """
    view = ProgramView(program, ranges)
    found = [finding for rule in rules if (finding := _apply(rule, view)) is not None]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def rules_for(target: str | Collection[str] = UNITS, os: str | None = None) -> list[Rule]:
    """Return the rules about these units and this version of the operating system."""
    units = [target] if isinstance(target, str) else list(target or ())
    units = [*UNITS] if "any" in units else units
    if not units:
        raise errors.ConversionError(
            f"target is {target!r}, which is not a compute unit\n"
            f"  try   pass one of {', '.join((*UNITS, 'any'))}"
        )
    for unit in units:
        if unit not in UNITS:
            raise errors.ConversionError(
                f"{unit!r} is not a compute unit\n  try   pass one of {', '.join((*UNITS, 'any'))}"
            )
    version = None if os is None else _version(str(os))
    return [r for r in RULES if set(r.units) & set(units) and _applies(r, version)]


def _applies(rule: Rule, version: tuple[int, ...] | None) -> bool:
    if version is None:
        return True
    too_old = bool(rule.since) and version < _version(rule.since)
    fixed = bool(rule.before) and version >= _version(rule.before)
    return not too_old and not fixed


def _version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+)*", text):
        raise errors.ConversionError(
            f"{text!r} is not a version of an operating system\n  try   pass a number, as 27.0"
        )
    return tuple(int(part) for part in text.split("."))


def _apply(rule: Rule, view: ProgramView) -> Finding | None:
    hits = list(rule.search(view))
    if not hits:
        return None
    what, place = hits[0]
    return Finding(
        rule.code,
        rule.severity,
        rule.problem,
        rule.hint,
        len(hits),
        f"{what}, {place}" if place else what,
        rule.units,
        rule.source,
        rule.rewrite,
    )
