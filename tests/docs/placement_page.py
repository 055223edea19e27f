"""Write docs/placement.md from the rules: `python -m tests.docs.placement_page`."""

from __future__ import annotations

from pathlib import Path

from coreai_torch.targets.placing import RULES, PlacementRule
from tests.targets import bar

PAGE = Path(__file__).parents[2] / "docs" / "placement.md"
_MODELS = (
    'Estimated regions of models in float16 with float16 ports and `target="neural_engine"`, as '
    "lowered and with the rewrites, from `python -m tests.targets.bar`. Models of transformers "
    "have few layers and small pictures. *Ops elsewhere* says why an op leaves the unit."
)
_MARK = "<!-- made by `python -m tests.docs.placement_page`; do not edit below -->"


def page() -> str:
    """Return the page with the table of the rules as they are now."""
    head = PAGE.read_text().partition(_MARK)[0]
    heads = ("code", "units", "effect", "construct", "what to do", "confidence", "report")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    rules = [*lines, *map(_row, RULES)]
    return (
        "\n".join([head + _MARK, "", *rules, "", "## Models", "", _MODELS, "", *bar.lines()]) + "\n"
    )


def _row(rule: PlacementRule) -> str:
    cells = (rule.code, ", ".join(rule.units), rule.effect, rule.reason, rule.hint)
    return f"| {' | '.join((*cells, rule.confidence, rule.source))} |"


if __name__ == "__main__":
    PAGE.write_text(page())
