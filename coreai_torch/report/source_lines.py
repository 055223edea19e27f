"""The source lines of a program's ops, read from the files on this machine."""

from __future__ import annotations

import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..asset.markup import shown

_AROUND = 3  # lines before and after the one that an op names
_LONGEST = 160  # characters of a line


def source_lines(data: Mapping[str, Any]) -> dict[str, dict[int, list[Any]]]:
    """Return lines around each line that `graph_data` names: by file and line, the first number
    and the texts.

    Only Python files are read: an asset may name any file, and pages are passed on.
    """
    wanted: dict[str, set[int]] = {}
    for function in data["functions"]:
        for op in function["ops"]:
            if "line" in op:
                wanted.setdefault(data["strings"][op["file"]], set()).add(op["line"])
    return {
        file: {line: _around(lines, line) for line in sorted(numbers) if line <= len(lines)}
        for file, numbers in wanted.items()
        if (lines := _read(Path(file)))
    }


def _around(lines: list[str], line: int) -> list[Any]:
    first = max(line - _AROUND, 1)
    return [first, *(shown(text)[:_LONGEST] for text in lines[first - 1 : line + _AROUND])]


def _read(path: Path) -> list[str]:
    """Return the lines of a Python file; an empty list if it cannot be read."""
    if path.suffix != ".py" or not path.is_file():
        return []
    try:
        with tokenize.open(path) as file:
            return file.read().expandtabs(4).splitlines()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
