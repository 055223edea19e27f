"""Human-readable numbers."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 op`, `2 ops`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return counted(count, "byte")


_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def duration(seconds: float) -> str:
    """Return a time as people write it: `2 min 5 s`, `3.4 s`, `12 ms`, `850 µs`, `0 s`."""
    if seconds >= 99.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    for unit, scale in _TIMES:
        if (shown := _two_digits(seconds / scale)) and (unit == "s" or float(shown) < 1000):
            return f"{shown} {unit}"
    return "0 s"


def _two_digits(number: float) -> str:
    """Return at least two digits: `3.4`, `12`, `850`; empty below one, for the next unit."""
    if number < 0.995:
        return ""
    return f"{number:.1f}" if number < 9.95 else f"{number:.0f}"


def quantity(count: float) -> str:
    """Return a large number with its unit: `950`, `11.7 M`, `1.8 G`."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 0.9995 * scale:
            shown = count / scale
            return f"{shown:.3g} {unit}" if shown < 999.5 else f"{shown:.0f} {unit}"
    return f"{count:.0f}"


def shares(parts: Sequence[float]) -> list[str]:
    """Return percentages with one decimal that add up to exactly 100.0 %.

    The percentages are rounded down, and those with the largest remainders get the missing tenths.
    """
    total = sum(parts)
    if total <= 0:
        return ["" for _ in parts]
    exact = [1000 * part / total for part in parts]
    tenths = [int(value) for value in exact]
    order = sorted(range(len(parts)), key=lambda i: tenths[i] - exact[i])
    for index in order[: 1000 - sum(tenths)]:
        tenths[index] += 1
    return [f"{value / 10:.1f} %" for value in tenths]
