"""The options of the steps: their names, and checks of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..errors import PlanError
from .checks import as_list, check_keys, choice, flag, positive, text

Check = Callable[[Any, str], Any]


def _texts(given: Any, where: str) -> None:
    for value in as_list(given, where):
        text(value, where)


def _units(given: Any, where: str) -> None:
    for value in as_list(given, where):
        choice(value, where, ("cpu", "gpu", "neural_engine", "any"))


def _version(given: Any, where: str) -> None:
    if not re.fullmatch(r"\d+(\.\d+)*", str(given)):
        raise PlanError(f"{where} is {given!r}\n  try   give a version, as '27.0'")


_whole = partial(positive, whole=True)
_count = partial(positive, whole=True, zero=True)
_CHECKS: dict[str, dict[str, Check]] = {
    "export": {},
    "compress": {"block_size": _whole, "only": _texts, "skip": _texts, "least": _count},
    "convert": {"recognize": flag, "keep": _texts},
    "verify": {"mode": partial(choice, known=("quick", "full", "accept-unjudged"))},
    "lint": {"os": _version, "units": _units, "strict": flag},
    "bench": {"runs": _whole, "warmup": _count, "size": _whole},
}


def checked_options(step: str, given: Any, where: str) -> dict[str, Any]:
    """Return the options of a step; reject an unknown name or a wrong value."""
    checks = _CHECKS[step]
    options: Mapping[str, Any] = {} if given is None else given
    check_keys(options, tuple(checks), f"{where}, options of {step}")
    for name, value in options.items():
        checks[name](value, f"{where}.{step}.{name}")
    return dict(options)
