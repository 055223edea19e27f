"""Write the table of docs/targets.md: `python -m tests.docs.targets_page`."""

from __future__ import annotations

from pathlib import Path

from coreai_torch.targets.lint import RULES
from coreai_torch.targets.placing import RULES as PLACEMENT_RULES
from coreai_torch.targets.rewrites import REWRITES
from tests.rewrites import score

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
_MARK = "<!-- made by `python -m tests.docs.targets_page`; do not edit below -->"


_SCORE = (
    "Judged by `make rewrites`: each op case and each model is converted with all rewrites, "
    "optimized, run on the Linux runtime and compared with PyTorch, with the same tolerances as "
    "without rewrites. *Places* in the table above counts how often each rewrite was applied in "
    "these runs; a rewrite with 0 places is checked by its own tests only. Refused models are "
    "those that cannot be converted without rewrites either; *fail without too* are models whose "
    "library was missing, or that the version of torch could not export."
)


def page() -> str:
    """Return the page with the table of the rewrites as they are now."""
    head = PAGE.read_text().partition(_MARK)[0]
    lines = [
        "| id | units | construct | emitted | places | report |",
        "|---|---|---|---|---|---|",
    ]
    problems = {rule.code: (rule.reason, rule.source) for rule in PLACEMENT_RULES}
    problems |= {rule.code: (rule.problem, rule.source) for rule in RULES}
    for rewrite in sorted(REWRITES, key=lambda rewrite: rewrite.code):
        problem, source = problems[rewrite.code]
        emitted = f"{rewrite.summary}{'; on request' if rewrite.on_request else ''}"
        units = ", ".join(rewrite.units)
        places = str(score.places(rewrite.code))
        cells = (rewrite.code, units, problem, emitted, places, source)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Score", "", _SCORE, "", *score.lines()]
    return "\n".join([head + _MARK, "", *lines]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
