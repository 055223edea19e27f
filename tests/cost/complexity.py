"""The declared cost of lowerings that are not linear, as a function of one size n.

A family declares the growth of the time to run, of the program (ops), of its constants and of the
peak memory of loading and running. Each has a reason. `docs/benchmarks.md` prints the table, and
`test_growth.py` measures every family, and the calls of `LINEAR`.
"""

from __future__ import annotations

from .linear_calls import INDEXING, POINTWISE
from .linear_layers import LAYERS, LOSSES, RESIZED, SHAPES
from .linear_quantized import QUANTIZED
from .matrices import MATRICES
from .pairs import PAIRS
from .sequences import SEQUENCES

FAMILIES = (*SEQUENCES, *PAIRS, *MATRICES, *RESIZED)
LINEAR = (*POINTWISE, *INDEXING, *SHAPES, *LAYERS, *LOSSES, *QUANTIZED)
