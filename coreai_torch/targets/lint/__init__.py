"""Rules about constructs that fail, give wrong numbers or are slow on devices."""

from .findings import Finding, lint, lint_program, rules_for
from .rule import UNITS, Rule
from .rules import RULES

__all__ = ["RULES", "UNITS", "Finding", "Rule", "lint", "lint_program", "rules_for"]
