"""The supported compression ops, under the names that other programs look up."""

from .compat.resolvers import _custom_to_core_resolver

__all__ = ["_custom_to_core_resolver"]
