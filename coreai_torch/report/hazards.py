"""The findings of lint that a report and `coreai-torch doctor` show."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from coreai.authoring import AIProgram

from ..asset.reading import Program, Source
from ..asset.resources import asset_at
from ..linting import Finding, lint, lint_program
from ..rewrites import METADATA

Hazard = Finding


def hazards(source: Source) -> list[Hazard]:
    """Return all hazards of a program, errors first; `lint` also returns what is only slow."""
    return _without_info(lint(source))


def hazards_of(program: Program) -> list[Hazard]:
    """Return all hazards of a program that was already read."""
    return _without_info(lint_program(program))


def rewritten(source: Source) -> dict[str, int]:
    """Return the number of places that the conversion rewrote, by the id of the rewrite."""
    if isinstance(source, AIProgram):
        return dict(Counter(one.code for one in getattr(source, "rewrites", ())))
    asset = asset_at(Path(source)) if isinstance(source, str | Path) else source
    stored = asset.metadata.creator_defined_metadata.get(METADATA, "{}")
    return {str(code): int(count) for code, count in json.loads(stored).items()}


def _without_info(found: list[Hazard]) -> list[Hazard]:
    return [finding for finding in found if finding.severity != "info"]
