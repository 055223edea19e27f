"""Check that all text uses the plain words of CONTRIBUTING.md and the glossary.

`WORDS` are expressions that the project replaced, each with the plain one. Keep the list short and
precise: an expression belongs here if it is always wrong.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {
    r"\b(?:is|are|be) told\b": "is reported",
    r"\bof which there are none\b": "there are none",
    r"\b(?:leaves?|left) with \d": "exits with code 1",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"(?<!on the )\bway out\b": "hint",
    r"\b(?:dies?|died) of\b": "crashes on",
    r"\bopen sizes?\b": "dynamic size",
    r"\bsizes? that (?:may )?var(?:y|ies)\b": "dynamic size",
    r"(?<!here )\bis no (?!longer|more)[a-z]\w*": "is not a ...",
    r"\bhas not\b(?! (?:been|yet))": "does not have",
    r"\bkept apart\b": "separate",
    r"\bthe three doors\b": "the three ways",
    r"\bholds? the numbers to\b": "compares the numbers with",
    r"\bheld to\b": "compared with",
    r"\bof (?:its|their|your|our) own\b": "separate",
    r"\b[Tt]he run time\b": "the runtime",
    r"\b(?:its|their|and) kin\b": "similar",
    r"\bin vain\b": "needlessly",
}
# Text of others, and lists of these words.
EXCLUDED = ("tests/compat/seeds/", "tests/unit/test_plain_english.py")
# Path: reason. Empty when all files are rewritten.
NOT_YET: dict[str, str] = {}
TEXTS = sorted(
    str(file.relative_to(ROOT))
    for folder, pattern in (
        ("coreai_torch", "**/*.py"),
        ("docs", "**/*.md"),
        ("tests", "**/*.py"),
        ("benchmarks", "**/*.py"),
        ("examples", "**/*.py"),
        ("examples", "**/*.md"),
        ("", "*.md"),
        ("", "*.toml"),
        ("", "Makefile"),
    )
    for file in (ROOT / folder).glob(pattern)
    if not str(file.relative_to(ROOT)).startswith(EXCLUDED)
)


def _archaic(text):
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}: write {plain!r}"
        for pattern, plain in WORDS.items()
        for found in re.finditer(pattern, text)
    ]


def test_text_uses_plain_words():
    found = {path: lines for path in TEXTS if (lines := _archaic((ROOT / path).read_text()))}
    assert {path: lines for path, lines in found.items() if path not in NOT_YET} == {}


def test_exceptions_are_files():
    assert sorted(set(NOT_YET) - set(TEXTS)) == []


def test_replaced_words_are_found():
    assert _archaic("It leaves with 1:\n'x' is no dtype.") == [
        "line 1: 'leaves with 1': write 'exits with code 1'",
        "line 2: 'is no dtype': write 'is not a ...'",
    ]


@pytest.mark.parametrize(
    "text",
    ["It is no longer used and has not been run.", "There is no file.", "read on the way out"],
)
def test_plain_text_passes(text):
    assert _archaic(text) == []
