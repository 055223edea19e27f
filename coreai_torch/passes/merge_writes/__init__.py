"""Merge writes to parts of a tensor: find them in the graph, and emit them together."""

from .finding import merge_writes

__all__ = ["merge_writes"]
