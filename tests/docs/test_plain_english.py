"""Check that the text uses the plain words of CONTRIBUTING.md and the glossary.

`WORDS` are expressions that the project replaced, each with the plain one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {
    r"\bis told\b": "is reported",
    r"\bof which there are none\b": "there are none",
    r"\b(?:leaves?|left) with \d": "exits with code 1",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bway out\b": "hint",
    r"\bdies? of\b": "crashes on",
    r"\bopen sizes?\b": "dynamic size",
    r"\bsizes? that (?:may )?var(?:y|ies)\b": "dynamic size",
    r"(?<!here )\bis no (?!longer|more)\w+": "is not a ...",
    r"\bhas not\b(?! (?:been|yet))": "does not have",
    r"\bthe three doors\b": "the three ways",
    r"\bholds? the numbers to\b": "compares the numbers with",
    r"\bheld to\b": "compared with",
    r"\bof (?:its|their|your|our) own\b": "separate",
    r"\bthe run time (?:on|of|is|takes|adds)\b": "the runtime",
    r"\bkin\b": "similar",
}
GENERATED = {"api.md", "ops.md", "models.md", "benchmarks.md"}
TEXTS = [
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "coreai_torch/cli").glob("*.py")),
    *(ROOT / "coreai_torch" / f"{name}.py" for name in ("__init__", "errors", "progress")),
]


def _archaic(text):
    return [
        f"{found[0]!r}: write {plain!r}"
        for pattern, plain in WORDS.items()
        for found in re.finditer(pattern, text)
    ]


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_text_uses_plain_words(file):
    assert _archaic(file.read_text()) == []


def test_replaced_words_are_found():
    assert _archaic("It leaves with 1: 'x' is no dtype.") == [
        "'leaves with 1': write 'exits with code 1'",
        "'is no dtype': write 'is not a ...'",
    ]
    assert _archaic("It is no longer used and has not been run.") == []
