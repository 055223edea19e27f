"""Convert models that draw random numbers.

`table` writes each random op with three of them: uniform numbers, normal numbers and integers.
`rewriting` replaces these in a decomposed program by inputs, or by numbers that `generator`
computes of a seed. `replay` runs the model in torch with the same numbers.
"""

from .draw import Draw, Randomness, check_randomness, draw_of
from .replay import reference
from .rewriting import with_draws
from .table import RANDOM_OPS, decompositions

__all__ = [
    "RANDOM_OPS",
    "Draw",
    "Randomness",
    "check_randomness",
    "decompositions",
    "draw_of",
    "reference",
    "with_draws",
]
