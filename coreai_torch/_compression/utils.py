"""Compressed layers as parametrizations."""

from ..compression.modules import wrap_for_parametrization

__all__ = ["wrap_for_parametrization"]
