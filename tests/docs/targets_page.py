"""Write the table of docs/targets.md: `python -m tests.docs.targets_page`."""

from __future__ import annotations

from pathlib import Path

from coreai_torch.linting import RULES
from coreai_torch.rewrites import REWRITES

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
_MARK = "<!-- made by `python -m tests.docs.targets_page`; do not edit below -->"


def page() -> str:
    """Return the page with the table of the rewrites as they are now."""
    head = PAGE.read_text().partition(_MARK)[0]
    lines = ["| id | units | construct | emitted | report |", "|---|---|---|---|---|"]
    rules = {rule.code: rule for rule in RULES}
    for rewrite in sorted(REWRITES, key=lambda rewrite: rewrite.code):
        rule = rules[rewrite.code]
        units = ", ".join(rewrite.units)
        cells = (rewrite.code, units, rule.problem, rewrite.summary, rule.source)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([head + _MARK, "", *lines]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
