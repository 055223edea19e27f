"""Files and functions stay short, and test modules have unique names."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = {"coreai_torch/converter.py": 385}
FILE, FUNCTION = 500, 45


def _files(*folders):
    files = [f for folder in folders for f in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 100
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def test_files_are_short():
    found = {name: text.count("\n") for name, text in _files("coreai_torch", "tests").items()}
    assert not {name: n for name, n in found.items() if n > LINES.get(name, FILE)}


def test_functions_are_short():
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, text in _files("coreai_torch").items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines(node) > FUNCTION
    ]
    assert not long


def _lines(function):
    """Return the number of lines of the body, without the docstring."""
    first = function.body[1:2] if ast.get_docstring(function) else function.body[:1]
    return function.end_lineno - first[0].lineno + 1 if first else 0


def test_test_modules_have_unique_names():
    # pytest imports them by their base name, except those of a package or a command.
    files = [ROOT / file for file in _files("tests")]
    packages = {f.parent for f in files if f.name in ("__init__.py", "__main__.py")}
    names = Counter(f.name for f in files if f.parent not in packages)
    assert {name for name, count in names.items() if count > 1} - {"conftest.py"} == set()
