"""Every error class has a unique code, which its message shows and docs/errors.md explains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coreai_torch import errors

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
ROWS = dict(re.findall(r"^\| (CAT\d+) \| `?(\w+)`? \|", PAGE, re.MULTILINE))
CLASSES = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, Exception) and cls.__module__ == errors.__name__
]


def test_codes_are_unique():
    assert all("code" in vars(cls) for cls in CLASSES)
    assert len({cls.code for cls in CLASSES}) == len(CLASSES) >= 17


def test_page_explains_exactly_these_codes():
    found = {cls.code: cls.__name__ for cls in CLASSES}
    assert found == ROWS


@pytest.mark.parametrize("cls", [c for c in CLASSES if issubclass(c, errors.CodedError)])
def test_message_ends_with_the_code(cls):
    assert str(cls("what happened")) == f"what happened\n  code  {cls.code}"


def test_errors_keep_their_builtin_base_classes():
    assert issubclass(errors.ConversionError, ValueError)
    assert issubclass(errors.NativeError, RuntimeError)
