"""Entries whose samples torch.export rejects unchanged: judged in another form, or skipped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Aside:
    """The number of skipped samples of each of these dtypes."""

    reason: str
    dtypes: tuple[str, ...]
    samples: int


_RESIDUALS = (
    "`gelss` and `gelsd` return residuals of a tall matrix only if it has full rank: the size of a "
    "result depends on values"
)

# torch.export fails with any table, strict or not.
SET_ASIDE: dict[str, Aside] = {
    "linalg.lstsq": Aside(_RESIDUALS, ("f32",), 6),
    "linalg.lstsq.grad_oriented": Aside(_RESIDUALS, ("f32",), 6),
}

# Entries whose rank-0 tensors are constants of the model, not inputs.
NUMBERS: dict[str, str] = {
    "tensor_split": "the number of sections is the number of results, which an input cannot change",
}

# Entries whose tensors are views; the program gets their bases as inputs.
VIEWS: dict[str, str] = {
    "as_strided.partial_views": "reads memory before and after the given tensor",
}
