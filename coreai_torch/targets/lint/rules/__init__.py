"""The rules, one row each, grouped by what goes wrong."""

from dataclasses import replace

from ...rewrites import REWRITES
from ..rule import Rule
from . import attention, compression, crashes, integers, ports, precision, rounding, speed, states

_REWRITES = {rewrite.code: rewrite.summary for rewrite in REWRITES}
RULES: tuple[Rule, ...] = tuple(
    replace(rule, rewrite=_REWRITES.get(rule.code, ""))
    for rule in sorted(
        (
            *rounding.RULES,
            *integers.RULES,
            *precision.RULES,
            *crashes.RULES,
            *attention.RULES,
            *states.RULES,
            *ports.RULES,
            *compression.RULES,
            *speed.RULES,
        ),
        key=lambda rule: rule.code,
    )
)
