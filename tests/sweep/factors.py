"""Compare factorizations by quantities that do not depend on the signs of their vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensors = Sequence[torch.Tensor]


def _eigen(results: Tensors) -> list[torch.Tensor]:
    """Return values, absolute vectors, their products, and the reconstructed matrix."""
    values, vectors = results
    whole = (vectors * values.unsqueeze(-2)) @ vectors.mT
    return [values, vectors.abs(), vectors.mT @ vectors, whole]


def _in_order(values: torch.Tensor) -> torch.Tensor:
    """Sort by the rounded real part, then by the imaginary part, which orders conjugates."""
    key = (values.real * 100).round() * 1000 + values.imag
    return values.gather(-1, key.argsort(-1))


def _general_eigen(results: Tensors) -> list[torch.Tensor]:
    """Return sorted values, lengths of the vectors, and the reconstructed matrix."""
    values, vectors = results
    wide = vectors.to(torch.complex128)
    whole = (wide * values.unsqueeze(-2)) @ torch.linalg.inv(wide)
    return [_in_order(values), vectors.abs().square().sum(-2), whole.to(values.dtype)]


def _singular(left: torch.Tensor, values: torch.Tensor, right: torch.Tensor) -> list[torch.Tensor]:
    """Return the same for an SVD; the extra vectors of a full basis are arbitrary."""
    count = values.shape[-1]
    first, second = left[..., :count], right[..., :count, :]
    whole = (first * values.unsqueeze(-2)) @ second
    products = left.mT @ left, right @ right.mT
    return [values, first.abs(), second.abs(), *products, first @ second, whole]


INVARIANTS: dict[str, Callable[[Tensors], list[torch.Tensor]]] = {
    "linalg.eig": _general_eigen,
    "linalg.eigh": _eigen,
    "linalg.eigvals": lambda results: [_in_order(results[0])],
    "linalg.svd": lambda usv: _singular(*usv),
    "svd": lambda usv: _singular(usv[0], usv[1], usv[2].mT),
}
