"""What a program is made for: a compute unit, and how strictly it follows torch at extremes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentTypeError
from . import rewrites
from .rewrites.rewrite import Rewrite


@dataclass(frozen=True)
class Target:
    """The compute unit of a program, and the forms of its ops.

    Args:
        unit: "neural_engine", "gpu", "cpu" or "any": rewrite what is reported to fail there; the
            `rewrites` of the program list the places. "linux" emits the forms that the Linux
            runtime runs fastest, for servers and evaluation.
        exact: whether infinities, NaN and overflow give the same results as in torch even where
            that takes more than two ops; the page of ops lists what differs without it.
        safe: False applies no rewrites.
        skip_rewrites: ids of rewrites to leave out, as ["HAZ11"].
        extra_rewrites: ids of rewrites that apply on request only, as ["PLACE15"].
    """

    unit: str | None = None
    exact: bool = False
    safe: bool = True
    skip_rewrites: Collection[str] = ()
    extra_rewrites: Collection[str] = ()

    def __post_init__(self) -> None:
        """Raise for an unknown unit or rewrite."""
        self.rewrites()

    @classmethod
    def of(cls, given: Target | str | None, **fields: Any) -> Target:
        """Return a target for a unit and the other fields, which have their defaults beside one."""
        if not isinstance(given, Target):
            return cls(given, **fields)
        defaults = {name: getattr(cls, name) for name in fields}
        if fields != defaults:
            raise ArgumentTypeError(
                f"{', '.join(n for n in fields if fields[n] != defaults[n])} is given beside "
                "target=Target(...)\n  try   pass all of them to Target"
            )
        return given

    def rewrites(self) -> tuple[Rewrite, ...]:
        """Return the rewrites for the unit."""
        return rewrites.chosen(
            self.unit, safe=self.safe, without=self.skip_rewrites, also=self.extra_rewrites
        )
