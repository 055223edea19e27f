"""The results and rules of `coreai_torch.lint`."""

from .targets.lint import RULES, UNITS, Finding, Rule, lint, lint_program, rules_for

__all__ = ["RULES", "UNITS", "Finding", "Rule", "lint", "lint_program", "rules_for"]
