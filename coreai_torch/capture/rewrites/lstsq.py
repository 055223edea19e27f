"""`torch.linalg.lstsq` by factorisations whose results have sizes that torch.export knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def lstsq(x: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Solution, residuals, rank and singular values, where their sizes do not depend on values.

    `gelss` and `gelsd` leave the residuals of a tall matrix out if any has not its full rank.
    """
    driver = driver or "gelsy"
    rows, columns = x.shape[-2:]
    if b.dim() != x.dim() or (rows > columns and driver in ("gelss", "gelsd")):
        return NotImplemented
    nothing = x.new_empty((0,))
    batch = torch.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    if driver == "gels":
        solution, rank = _of_full_rank(x, b), nothing.long()
        if rows <= columns:
            return _returned(solution, nothing, rank, nothing)
        return _returned(solution, (x @ solution - b).square().sum(-2), rank, nothing)
    left, values, right = torch.linalg.svd(x, full_matrices=False)
    least = torch.finfo(x.dtype).eps * max(rows, columns) if rcond is None else rcond
    counts = values > least * values.amax(-1, keepdim=True)
    inverse = torch.where(counts, 1 / values, 0.0).unsqueeze(-1)
    solution = right.mT @ (inverse * (left.mT @ b))
    values = nothing if driver == "gelsy" else values.expand(*batch, *values.shape[-1:])
    return _returned(solution, nothing, counts.sum(-1).expand(batch), values)


def _of_full_rank(x: Tensor, b: Tensor) -> Tensor:
    if x.shape[-2] >= x.shape[-1]:
        q, r = torch.linalg.qr(x)
        return torch.linalg.solve_triangular(r, q.mT @ b, upper=True)
    q, r = torch.linalg.qr(x.mT)
    return q @ torch.linalg.solve_triangular(r.mT, b, upper=False)


def _returned(*results: Tensor) -> Any:
    return torch.return_types.linalg_lstsq(results)
