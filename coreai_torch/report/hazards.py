"""The findings of lint that a report and `coreai-torch doctor` show."""

from __future__ import annotations

from ..asset.metadata import annotation
from ..asset.reading import Source
from ..targets.lint import Finding, lint
from ..targets.rewrites import METADATA

Hazard = Finding


def hazards(source: Source) -> list[Hazard]:
    """Return all hazards of a program, errors first; `lint` also returns what is only slow."""
    return [finding for finding in lint(source) if finding.severity != "info"]


def rewritten(source: Source) -> dict[str, int]:
    """Return the number of places that the conversion rewrote, by the id of the rewrite."""
    return {str(code): int(count) for code, count in annotation(source, METADATA).items()}
