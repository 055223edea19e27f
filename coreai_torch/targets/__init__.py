"""What depends on a compute unit: forms, rewrites, rules, and where each op will run."""

from __future__ import annotations

from importlib import import_module

from ..lowering.registry import BUILTIN, LINUX, Registry
from .options import Target
from .placing import placement
from .rewriting import Rewriting


def registry_of(target: str | None) -> Registry:
    """Return the lowerings for a target; its package is imported when it is asked for."""
    if target != "linux":
        return BUILTIN
    import_module(".linux", __name__)
    return LINUX


__all__ = ["Rewriting", "Target", "placement", "registry_of"]
