"""Checks of the values of a plan; each error names the place, and similar names."""

from __future__ import annotations

import difflib
import math
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
        raise PlanError(f"{where} is {given!r}, which is not a text\n  try   give a text")
    return given


def flag(given: Any, where: str) -> bool:
    """Reject what is neither true nor false: the text "no" would count as true."""
    if not isinstance(given, bool):
        raise PlanError(f"{where} is {given!r}\n  try   give true or false")
    return given


def choice(given: Any, where: str, known: Sequence[str]) -> str:
    """Reject what is not one of the known values."""
    if given not in known:
        raise PlanError(
            f"{where}: unknown value {given!r}{nearest(str(given), known)}\n"
            f"  try   use {', '.join(known[:-1])} or {known[-1]}"
        )
    return str(given)


def positive(given: Any, where: str, *, whole: bool = False, zero: bool = False) -> float:
    """Reject what is not a finite number above zero, or at least zero."""
    kinds = int if whole else (int, float)
    number = isinstance(given, kinds) and not isinstance(given, bool) and math.isfinite(given)
    if not number or given < 0 or (given == 0 and not zero):
        kind = "an integer" if whole else "a number"
        least = "from 0" if zero else "above 0"
        raise PlanError(f"{where} is {given!r}\n  try   give {kind} {least}")
    return float(given) if not whole else given


def without_repeats(values: Sequence[Any], where: str) -> tuple[Any, ...]:
    """Reject an empty list and a repeated value, which would make two tasks with one id."""
    if not values:
        raise PlanError(f"{where} is empty\n  try   list a value, or remove the key")
    seen: set[str] = set()
    for value in values:
        if repr(value) in seen:
            raise PlanError(f"{where} lists {value!r} twice\n  try   remove one of them")
        seen.add(repr(value))
    return tuple(values)
