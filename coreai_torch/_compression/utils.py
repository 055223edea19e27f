"""Compressed layers as parametrizations, and their weights packed."""

from ..compat.subbyte import inject_subbyte_tensors
from ..compression.modules import wrap_for_parametrization

__all__ = ["inject_subbyte_tensors", "wrap_for_parametrization"]
