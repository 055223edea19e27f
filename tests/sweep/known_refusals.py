"""Entries that the converter refuses in part or whole, in which dtypes and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A dtype that is not named refuses no sample."""

    reason: str
    dtypes: tuple[str, ...]


KNOWN_REFUSALS: dict[str, Refusal] = {}
