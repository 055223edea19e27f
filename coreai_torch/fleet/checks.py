"""Checks of the values of a plan; each error names the place, and similar names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import PlanError


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the most similar known name, or an empty string."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def check_keys(given: Any, known: Sequence[str], where: str, required: Sequence[str] = ()) -> None:
    """Reject what is not a mapping, an unknown key, or a missing one."""
    if not isinstance(given, Mapping):
        raise PlanError(f"{where} is {given!r}\n  try   give keys: {', '.join(known) or 'none'}")
    for key in given:
        if key not in known:
            raise PlanError(
                f"{where}: unknown key {key!r}{nearest(str(key), known)}\n"
                f"  try   use some of {', '.join(known) or 'no keys'}"
            )
    for key in required:
        if key not in given:
            raise PlanError(f"{where}: the key {key!r} is missing\n  try   add it")


def as_list(given: Any, where: str) -> list[Any]:
    """Return a list as it is, and a single value as a list."""
    if given is None:
        raise PlanError(f"{where} has no value\n  try   list its values, or remove the key")
    return list(given) if isinstance(given, list | tuple) else [given]


def text(given: Any, where: str) -> str:
    """Reject what is not a text."""
    if not isinstance(given, str):
        raise PlanError(f"{where} is {given!r}, a {type(given).__name__}\n  try   give a text")
    return given


def positive(given: Any, where: str, *, whole: bool = False) -> float:
    """Reject what is not a positive number."""
    kinds = int if whole else (int, float)
    if isinstance(given, bool) or not isinstance(given, kinds) or given <= 0:
        kind = "a positive integer" if whole else "a positive number"
        raise PlanError(f"{where} is {given!r}\n  try   give {kind}")
    return given
