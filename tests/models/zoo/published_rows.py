"""All rows at published sizes, and which of them stands for a row of the zoo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import published_others, published_sizes
from .published_changes import CHANGES, SHORT, SMALL_VOCABULARY
from .published_transformers import published
from .row import Row

_OTHER_NAMES = {"audio_spectrogram": "ast", "longformer_unmasked": "longformer"}


def rows(zoo: Iterable[Row]) -> dict[str, Row]:
    """Return the rows that are written out, and one derived from each other row of the zoo."""
    written = [*published_sizes.ROWS, *published_others.ROWS]
    found = {row.name: row for row in written}
    covered = {name.partition(" ")[0] for name in found}
    for row in zoo:
        known = _OTHER_NAMES.get(row.name, row.name) in covered
        if not known and row.source and row.library == "transformers" and not row.refused:
            derived = published(row, **_changes(row.name))
            found[derived.name] = derived
    return found


def _changes(name: str) -> dict[str, Any]:
    changes = dict(CHANGES.get(name, {}))
    if name in SMALL_VOCABULARY | SHORT:
        changes["vocabulary"] = 8_192
    if name in SHORT:
        changes["length"] = 256
    return changes


def standing_for(name: str, published_names: Iterable[str]) -> str | None:
    """Return the row at published sizes that stands for a row of the zoo."""
    prefix = _OTHER_NAMES.get(name, name)
    return next((n for n in published_names if n.partition(" ")[0] == prefix), None)
