"""docs/lint.md lists the rules as they are."""

import pytest

from tests.docs.lint_page import PAGE, page


@pytest.mark.stored
def test_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tests.docs.lint_page"
