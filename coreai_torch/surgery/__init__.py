"""Split a model into a chain of assets that run one after the other."""

from .runner import Parts, load_parts
from .splitting import split

__all__ = ["Parts", "load_parts", "split"]
