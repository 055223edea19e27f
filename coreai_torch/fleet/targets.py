"""Targets of a conversion: only those that the installed `convert` supports."""

from __future__ import annotations

import inspect

from ..errors import PlanError


def check_target(target: str, where: str) -> None:
    """Reject a target that `convert` does not support."""
    from ..pipeline import convert

    if "target" not in inspect.signature(convert).parameters:
        raise PlanError(
            f"{where}.target: convert() has no targets in this version, but the plan has "
            f"{target!r}\n  try   remove the key"
        )
