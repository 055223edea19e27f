"""A second opinion: Core AI programs run by torch, op by op as the dialect defines them."""

from ..errors import RunError
from . import compression, elementwise, indexing, linear, reduction, shape, windows
from .module import Function, Module, known_ops, to_torch
from .plan import Event

__all__ = ["Event", "Function", "Module", "RunError", "known_ops", "to_torch"]

# Imported for what they register.
_FAMILIES = (compression, elementwise, indexing, linear, reduction, shape, windows)
