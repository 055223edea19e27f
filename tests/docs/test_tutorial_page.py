"""Run the tutorial notebook, and check that its page on the site is up to date."""

from __future__ import annotations

import pytest

from tests.docs import tutorial_page


def test_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = list(tutorial_page.run(tutorial_page.cells()))
    assert len(printed) > 5
    assert (tmp_path / "shapes.aimodel").is_dir()


@pytest.mark.stored
def test_page_is_up_to_date():
    assert tutorial_page.PAGE.read_text() == tutorial_page.page(tutorial_page.cells()), (
        "run: python -m tests.docs.tutorial_page"
    )


def test_page_shows_code_and_output():
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[a](../docs/a.md)"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}]},
    ]
    assert tutorial_page.page(cells) == (
        "# Title\n[a](a.md)\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n"
    )


def test_run_keeps_one_namespace_and_returns_what_is_printed():
    cells = [{"cell_type": "code", "source": [code]} for code in ("x = 2", "print(x)")]
    assert list(tutorial_page.run(cells)) == ["", "2\n"]
