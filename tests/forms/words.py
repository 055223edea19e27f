"""Describe the forms of an op in words, for the page of ops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_LOOPS = ("while", "while_loop")


def by_op(stored: Mapping[str, str]) -> dict[str, str]:
    """Return the words for each op: `one op`, `composite`, `composed of 2 to 9`, `loop`."""
    forms: dict[str, list[str]] = {}
    for name, form in stored.items():
        forms.setdefault(name.rpartition("-")[0], []).append(form)
    return {op: words(given) for op, given in forms.items()}


def words(forms: Iterable[str]) -> str:
    """Describe the forms of all cases of an op."""
    counts = [ops(form) for form in forms]
    if any(kind in _LOOPS for one in counts for kind in one):
        return "loop"
    sizes = sorted(sum(one.values()) for one in counts)
    if sizes[-1] == 0:
        return "no op"
    if sizes[-1] == 1:
        names = [kind for one in counts for kind in one]
        return "composite" if all(name.startswith("[") for name in names) else "one op"
    least = sizes[0]
    return (
        f"composed of {sizes[-1]}" if least == sizes[-1] else f"composed of {least} to {sizes[-1]}"
    )


def ops(form: str) -> dict[str, int]:
    """Return the number of ops by kind: `cast, mul 2 | HAZ51` gives cast 1 and mul 2."""
    listed = re.sub(r" of \d+$", "", form.partition(" | ")[0])
    if listed == "no op":
        return {}
    pairs = (one.split(" ") for one in listed.split(", "))
    return {name: int(count[0]) if count else 1 for name, *count in pairs}
