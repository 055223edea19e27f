"""Tests with examples that hypothesis draws, without importing hypothesis at collection.

Its import takes a second, and `pytest -k hypot` would select each test that its plugin marks.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

Strategies = Callable[[ModuleType], dict[str, Any]]


def examples(count: int, strategies: Strategies) -> Callable[[Callable[..., None]], Any]:
    """Run a test with `count` drawn examples; `strategies(st)` returns one strategy a parameter."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            from hypothesis import given, settings
            from hypothesis import strategies as st

            settings(max_examples=count, deadline=None)(given(**strategies(st))(test))()

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
