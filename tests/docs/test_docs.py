"""The Python blocks of every page in docs/ run, in their order, one namespace for each page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page):
    """Each block with the blank lines before it, so that a traceback names the page's own line."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, found.start(1)) + found[1]


PAGES = {page.name: page for page in sorted(DOCS.glob("*.md")) if any(blocks(page))}


def test_the_guides_are_found():
    assert {"composite-ops.md", "externalization.md"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_the_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks(PAGES[name]):
        exec(compile(block, str(PAGES[name]), "exec"), namespace)
