"""The supported ops of torch, under the names that other programs look up."""

from .compat.resolvers import _aten_to_core_resolver, _higher_order_resolver

__all__ = ["_aten_to_core_resolver", "_higher_order_resolver"]
