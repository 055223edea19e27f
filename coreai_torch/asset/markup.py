"""Build HTML; names of a model are escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


class Markup(str):
    """Text that is already HTML; other strings are escaped when they are inserted."""

    __slots__ = ()


def element(name: str, *children: str | None, **attributes: str | int | None) -> Markup:
    """Return an element; `class_` is the attribute `class`; None is omitted."""
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(shown(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{text}>{joined(*children)}</{name}>")


def joined(*children: str | None) -> Markup:
    """Concatenate markup."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else escape(shown(child))


def shown(text: str) -> str:
    r"""Return the text with codes for invisible and direction-changing characters: `\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _code(c) for c in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def script_data(data: Any) -> Markup:
    """Return JSON for a `<script>`: it cannot end the element, and U+2028 is escaped."""
    plain = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(plain.translate(_IN_SCRIPT))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], class_: str = "") -> Markup:
    """Return a table with a row of headings."""
    titles = element("tr", *(element("th", title, scope="col") for title in head))
    lines = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    body = joined(element("thead", titles), element("tbody", *lines))
    return element("table", body, class_=class_ or None)


def bar(share: float) -> Markup:
    """Return a bar as wide as the share; SVG, because strict content policies forbid styles."""
    width = f"{100 * min(max(share, 0.0), 1.0):.2f}%"
    rect = element("rect", width=width, height="100%", rx="2")
    return element("svg", rect, class_="bar", aria_hidden="true")
