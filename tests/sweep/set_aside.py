"""Entries whose samples torch.export cannot take as they are: judged otherwise, or set aside."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Aside:
    """So many samples of each of these dtypes; no other entry, dtype or sample is set aside."""

    reason: str
    dtypes: tuple[str, ...]
    samples: int


_RESIDUALS = (
    "`gelss` and `gelsd` give residuals of a tall matrix only if it has its full rank: the size of "
    "a result depends on values"
)

# torch.export fails, with any table, strict or not.
SET_ASIDE: dict[str, Aside] = {
    "linalg.lstsq": Aside(_RESIDUALS, ("f32",), 6),
    "linalg.lstsq.grad_oriented": Aside(_RESIDUALS, ("f32",), 6),
}

# Entries whose tensors of rank 0 are numbers of the model, not inputs.
NUMBERS: dict[str, str] = {
    "tensor_split": "the number of sections is the number of results, which no input can change",
}

# Entries whose tensors are views; the program is given all the memory that they lie in.
VIEWS: dict[str, str] = {
    "as_strided.partial_views": "reads memory before and behind the tensor that it is given",
}
