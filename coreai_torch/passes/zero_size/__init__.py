"""Find tensors that may have no elements, and emit the results of those that never have one."""

from .finding import may_be_empty, zero_size

__all__ = ["may_be_empty", "zero_size"]
