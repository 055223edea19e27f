"""docs/lint.md lists the rules as they are."""

from tests.docs.lint_page import PAGE, page


def test_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tests.docs.lint_page"
