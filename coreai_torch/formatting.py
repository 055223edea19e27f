"""Human-readable numbers."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 op`, `2 ops`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
