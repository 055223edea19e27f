"""Run Core AI programs in torch, op by op as the dialect defines them, as a second opinion."""

from ..errors import RunError
from . import compression, elementwise, indexing, linear, reduction, shape, windows
from .module import Function, Module, known_ops, to_torch
from .plan import Event
from .trying import evaluate

__all__ = ["Event", "Function", "Module", "RunError", "evaluate", "known_ops", "to_torch"]

# Imported because they register ops.
_FAMILIES = (compression, elementwise, indexing, linear, reduction, shape, windows)
