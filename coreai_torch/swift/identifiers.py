"""Names of a program as Swift identifiers and texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

# https://docs.swift.org/swift-book/documentation/the-swift-programming-language/lexicalstructure
_KEYWORDS = {
    word
    for line in (
        "associatedtype borrowing class consuming deinit enum extension fileprivate func",
        "import init inout internal let nonisolated open operator precedencegroup private",
        "protocol public rethrows static struct subscript typealias var break case catch",
        "continue default defer do else fallthrough for guard if in repeat return switch",
        "throw where while Any as await false is nil self Self super throws true try async",
        "actor macro package some any",
    )
    for word in line.split()
}
# Members that Swift does not let a type declare, not even in backticks.
_RESERVED = {"Type", "Protocol", "self", "init", "_"}


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return a valid, unique identifier for each name; keywords are in backticks."""
    used, found = set(taken), []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        plain = f"_{plain}" if plain[0].isdigit() or plain in _RESERVED else plain
        plain = "_port" if not plain.strip("_") else plain
        candidate, count = plain, 1
        while candidate in used:
            count += 1
            candidate = f"{plain}_{count}"
        used.add(candidate)
        found.append(f"`{candidate}`" if candidate in _KEYWORDS else candidate)
    return found


def type_name(name: str) -> str:
    """Return a name in upper camel case: `my-net` is `MyNet`."""
    words = [w for w in re.split(r"[^0-9A-Za-z]+", name) if w]
    joined = "".join(word[0].upper() + word[1:] for word in words)
    if not joined or joined[0].isdigit():
        joined = f"Model{joined}"
    return f"{joined}Model" if joined in _KEYWORDS | _RESERVED | SWIFT_TYPES else joined


SWIFT_TYPES = {"Bool", "Int8", "Int16", "Int32", "UInt8", "UInt16", "UInt32", "Float16", "Float"}
SWIFT_TYPES |= {"Int", "String", "Array", "ClosedRange", "SIMD2", "Sendable", "Swift"}


def text(value: str) -> str:
    """Return a string literal."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in escaped) + '"'


def comment(value: str) -> str:
    """Return text for a comment of one line."""
    return " ".join(value.split())
