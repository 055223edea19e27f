"""Check that the pages of the dialect vocabulary are up to date and complete."""

from __future__ import annotations

import inspect

import pytest

from coreai_torch.ir import dialect
from tests.docs import dialect_page


@pytest.mark.stored
def test_pages_are_up_to_date():
    made = dict(dialect_page.pages())
    stale = [
        path.name for path, text in made.items() if not path.exists() or path.read_text() != text
    ]
    stale += [
        path.name for path in (dialect_page.DOCS / "dialect").glob("*.md") if path not in made
    ]
    assert not stale, "run: python -m tests.docs.dialect_page"


def test_every_function_is_on_one_page():
    listed = [name for _, _, modules in dialect_page.GROUPS for name in dialect_page.names(modules)]
    functions = [n for n in dialect.__all__ if inspect.isfunction(getattr(dialect, n))]
    assert sorted(listed) == sorted(functions)
