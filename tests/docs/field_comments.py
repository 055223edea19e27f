"""Show the comment behind a field of a dataclass on the site, as its description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Give attributes without a docstring the comment at the end of their line."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Read the comment of a public attribute of a class."""
        is_field = attr.parent is not None and attr.parent.is_class and attr.annotation is not None
        if attr.docstring is not None or not is_field or attr.lineno is None:
            return
        lines = Path(str(attr.filepath)).read_text().splitlines()
        comment = re.search(r"  # (.+)$", lines[attr.lineno - 1])
        if comment and not comment[1].startswith(("type:", "noqa")):
            attr.docstring = griffe.Docstring(comment[1], lineno=attr.lineno, parent=attr)
