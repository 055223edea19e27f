"""The generation example produces the same text in Core AI as in transformers."""

import sys
from pathlib import Path

import pytest

GENERATION = Path(__file__).parents[2] / "examples" / "generation"


@pytest.fixture
def example(monkeypatch):
    pytest.importorskip("transformers", reason="needs the `llm` extra")
    monkeypatch.syspath_prepend(str(GENERATION))
    import generation

    yield generation
    sys.modules.pop("generation", None)


def test_generated_text_equals_transformers(example, capsys):
    assert example.main()
    printed = capsys.readouterr().out
    text = example.TEXT.decode()
    for prompt in example.PROMPTS:
        start = len(prompt)
        assert f"{prompt.decode()}|{text[start : start + example.NEW]}\n" in printed
