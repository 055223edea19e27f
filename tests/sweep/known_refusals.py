"""Entries that the converter refuses in part or whole, with how many samples and why.

Fewer refusals than a row says are progress: lower the row. More are a regression.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Samples refused at most, by dtype; a dtype that is not named refuses none."""

    reason: str
    samples: dict[str, int]


KNOWN_REFUSALS: dict[str, Refusal] = {}
