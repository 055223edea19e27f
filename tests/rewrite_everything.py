"""Let every converter of the tests apply rewrites, as if it had a target: `REWRITES=any`."""

from __future__ import annotations


def make_default(target: str) -> None:
    """Use `target` wherever a converter has none."""
    from coreai_torch import rewrites

    original = rewrites.chosen

    def chosen(given, **options):
        return original(given or target, **options)

    rewrites.chosen = chosen
