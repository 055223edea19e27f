"""Let every converter of the tests apply rewrites, as if it had a target: `REWRITES=any`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator


def make_default(target: str) -> None:
    """Use `target` wherever a converter has none."""
    from coreai_torch import rewrites

    original = rewrites.chosen

    def chosen(given, **options):
        return original(given or target, **options)

    rewrites.chosen = chosen


@contextlib.contextmanager
def counted(target: str | None) -> Iterator[Counter[str]]:
    """Use `target` within a block, and count the places of each rewrite."""
    from coreai_torch import rewrites

    chosen, apply = rewrites.chosen, rewrites.apply
    count: Counter[str] = Counter()

    def apply_counted(build, selected):
        done = apply(build, selected)
        count.update(one.code for one in done)
        return done

    if target:
        make_default(target)
    rewrites.apply = apply_counted
    try:
        yield count
    finally:
        rewrites.chosen, rewrites.apply = chosen, apply
