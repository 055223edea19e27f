"""The findings of lint that a report and `coreai-torch doctor` show."""

from __future__ import annotations

from ..asset.metadata import annotation
from ..asset.reading import Program, Source
from ..targets.lint import Finding, lint, lint_program
from ..targets.rewrites import METADATA

Hazard = Finding


def hazards(source: Source) -> list[Hazard]:
    """Return all hazards of a program, errors first; `lint` also returns what is only slow."""
    return _without_info(lint(source))


def hazards_of(program: Program) -> list[Hazard]:
    """Return all hazards of a program that was already read."""
    return _without_info(lint_program(program))


def rewritten(source: Source) -> dict[str, int]:
    """Return the number of places that the conversion rewrote, by the id of the rewrite."""
    return {str(code): int(count) for code, count in annotation(source, METADATA).items()}


def _without_info(found: list[Hazard]) -> list[Hazard]:
    return [finding for finding in found if finding.severity != "info"]
