"""Let every converter of the tests apply rewrites, as if it had a target: `REWRITES=any`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence


def make_default(target: str, only: Sequence[str] = ()) -> None:
    """Use `target` wherever a converter has none; `only` restricts the rewrites."""
    from coreai_torch.targets import rewrites

    original = rewrites.chosen

    def chosen(given, **options):
        selected = original(given or target, **options)
        return tuple(one for one in selected if not only or one.code in only)

    rewrites.chosen = chosen


@contextlib.contextmanager
def counted(target: str | None, only: Sequence[str] = ()) -> Iterator[Counter[str]]:
    """Use `target` within a block, and count the places of each rewrite."""
    from coreai_torch.targets import rewrites

    chosen, apply = rewrites.chosen, rewrites.apply
    count: Counter[str] = Counter()

    def apply_counted(build, selected):
        done = apply(build, selected)
        count.update(one.code for one in done)
        return done

    if target:
        make_default(target, only)
    rewrites.apply = apply_counted
    try:
        yield count
    finally:
        rewrites.chosen, rewrites.apply = chosen, apply
