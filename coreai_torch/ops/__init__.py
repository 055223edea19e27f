"""The built-in lowerings, one file per family; importing this fills the registry."""

from . import activation, casting, elementwise, matmul, rounding, shape, symbolic

__all__ = ["activation", "casting", "elementwise", "matmul", "rounding", "shape", "symbolic"]
