"""`torch.linalg.lstsq` with factorizations whose result sizes do not depend on values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def lstsq(x: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Return solution, residuals, rank and singular values, or `NotImplemented`.

    It is not implemented for a tall matrix with `gelss` or `gelsd`: the size of the residuals is
    zero if a matrix is rank-deficient, so it depends on values.
    """
    driver = driver or "gelsy"
    rows, columns = x.shape[-2:]
    if b.dim() != x.dim() or (rows > columns and driver in ("gelss", "gelsd")):
        return NotImplemented
    empty = x.new_empty((0,))
    batch = torch.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    if driver == "gels":
        solution, rank = _solve_full_rank(x, b), empty.long()
        if rows <= columns:
            return _result(solution, empty, rank, empty)
        return _result(solution, (x @ solution - b).square().sum(-2), rank, empty)
    left, values, right = torch.linalg.svd(x, full_matrices=False)
    threshold = torch.finfo(x.dtype).eps * max(rows, columns) if rcond is None else rcond
    nonzero = values > threshold * values.amax(-1, keepdim=True)
    inverse = torch.where(nonzero, 1 / values, 0.0).unsqueeze(-1)
    solution = right.mT @ (inverse * (left.mT @ b))
    values = empty if driver == "gelsy" else values.expand(*batch, *values.shape[-1:])
    return _result(solution, empty, nonzero.sum(-1).expand(batch), values)


def _solve_full_rank(x: Tensor, b: Tensor) -> Tensor:
    if x.shape[-2] >= x.shape[-1]:
        q, r = torch.linalg.qr(x)
        return torch.linalg.solve_triangular(r, q.mT @ b, upper=True)
    q, r = torch.linalg.qr(x.mT)
    return q @ torch.linalg.solve_triangular(r.mT, b, upper=False)


def _result(*results: Tensor) -> Any:
    return torch.return_types.linalg_lstsq(results)
