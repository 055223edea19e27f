"""Select the weights that `only`, `skip` and the patterns of schemes name."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import nn

from ..errors import NamingError
from .specs import Spec, to_spec
from .weights import Weight

Rule: TypeAlias = "str | type[nn.Module] | Callable[[str, nn.Module], bool]"
Rules: TypeAlias = "Rule | Iterable[Rule]"
# The scheme of a weight, or None and the reason to leave it unchanged.
Choice: TypeAlias = "tuple[Spec | None, str]"
Plan: TypeAlias = Callable[[Weight], "tuple[Spec | None, str]"]

UNMATCHED = "no pattern matches"


def selector(model: nn.Module, rules: Rules, argument: str) -> Callable[[Weight], bool]:
    """Return a function that says whether any rule matches a weight; check the patterns."""
    listed = _as_list(rules)
    for rule in listed:
        check_pattern(model, rule, f"{argument}={rule!r}")
    return lambda weight: any(matches(rule, weight) for rule in listed)


def _as_list(rules: Rules) -> Sequence[Rule]:
    one = isinstance(rules, str | type) or callable(rules)
    return [rules] if one else list(rules)  # type: ignore[list-item, arg-type]


def check_pattern(model: nn.Module, rule: Any, shown: str) -> None:
    """Raise if a pattern matches no layer and no weight; name the nearest ones."""
    if not isinstance(rule, str):
        return
    paths = [path for path, _ in model.named_modules() if path]
    paths += [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if any(fnmatch.fnmatchcase(path, rule) for path in paths):
        return
    general = [re.sub(r"(?<![^.])\d+(?![^.])", "*", path) for path in paths]
    names = list(dict.fromkeys([*paths, *general]))
    near = [repr(name) for name in difflib.get_close_matches(rule, names, 3, cutoff=0.5)]
    hint = f"use {' or '.join(near)}, " if near else "use a name from model.named_modules(), "
    raise NamingError(
        f"{shown} matches no layer and no weight\n  try   {hint}or a pattern with '*'"
    )


def matches(rule: Any, weight: Weight) -> bool:
    """Return whether a rule matches a weight, its layer or a module that contains it."""
    if isinstance(rule, str):
        parts = weight.name.split(".")
        above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        return any(fnmatch.fnmatchcase(path, rule) for path in above)
    if isinstance(rule, type):
        return isinstance(weight.module, rule)
    return bool(rule(weight.path, weight.module))


def plan_of_patterns(
    model: nn.Module, schemes: Mapping[Any, str | Spec | None], block_size: int | None
) -> Plan:
    """Return the plan of a dictionary: the first pattern that matches a weight decides."""
    specs = {}
    for rule, given in schemes.items():
        check_pattern(model, rule, f"the pattern {rule!r}")
        specs[rule] = None if given is None else to_spec(given, block_size)

    def plan(weight: Weight) -> Choice:
        for rule, spec in specs.items():
            if any(matches(rule, user) for user in weight.users):
                return spec, "" if spec else f"{rule!r} has no scheme"
        return None, UNMATCHED

    return plan


def plan_of_layers(choose: Callable[[str, nn.Module], Spec | None]) -> Plan:
    """Return the plan of a function of path and layer; the first user with a scheme decides."""

    def plan(weight: Weight) -> Choice:
        found = (choose(user.path, user.module) for user in weight.users)
        spec = next((spec for spec in found if spec is not None), None)
        return spec, "" if spec else "no scheme"

    return plan
