"""The built-in lowerings, one file per family; importing this fills the registry."""

from . import (
    activation,
    casting,
    convolution,
    elementwise,
    matmul,
    normalization,
    reduction,
    rounding,
    shape,
    statistics,
    symbolic,
)

__all__ = [
    "activation",
    "casting",
    "convolution",
    "elementwise",
    "matmul",
    "normalization",
    "reduction",
    "rounding",
    "shape",
    "statistics",
    "symbolic",
]
