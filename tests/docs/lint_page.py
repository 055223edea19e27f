"""Write docs/lint.md from the rules: `python -m tests.docs.lint_page`."""

from __future__ import annotations

from pathlib import Path

from coreai_torch.targets.lint import RULES, Rule

PAGE = Path(__file__).parents[2] / "docs" / "lint.md"
_MARK = "<!-- made by `python -m tests.docs.lint_page`; do not edit below -->"


def page() -> str:
    """Return the page with the table of the rules as they are now."""
    head = PAGE.read_text().partition(_MARK)[0]
    heads = ("code", "kind", "units", "problem", "what to do", "rewrite", "report")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([head + _MARK, "", *lines, *map(_row, RULES)]) + "\n"


def _row(rule: Rule) -> str:
    version = f" (before {rule.before})" if rule.before else ""
    units = ", ".join(rule.units)
    cells = (rule.code, rule.severity, units, rule.problem + version, rule.hint)
    return f"| {' | '.join((*cells, rule.rewrite, rule.source))} |"


if __name__ == "__main__":
    PAGE.write_text(page())
