"""The rules, one row each, grouped by what goes wrong."""

from ..rule import Rule
from . import attention, compression, crashes, integers, ports, precision, rounding, speed, states

RULES: tuple[Rule, ...] = tuple(
    sorted(
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
