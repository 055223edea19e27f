"""Lower grouped matrix products (mixture of experts): each group of rows has its own matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, i32
from ...torch_compat import aten

_ENDS = i32(3, values=(2, 2, 5), fixed=True)
_FEW = i32(6, values=(0, 1, 1, 2, 2, 3), fixed=True)


def _bf16(*shape: int, **kw: Any) -> T:
    return bf16(*shape, values=(1, 2, -3, 0.5, -1), **kw)  # every sum of products is exact


def _group(count: int, ends: Tensor) -> Tensor:
    """Return the group of each row; `len(ends)` for rows after the last group."""
    row = torch.arange(count, device=ends.device)
    return (row[:, None] >= ends).sum(1)


def _rows_by_group(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Multiply each row by the matrix of its group; rows without a group give zero.

    With few rows, one matrix per row is gathered, at most as many as there are. With many rows that
    would need memory for rows times matrices; then all products are computed and one is selected.
    """
    count, groups = rows.shape[0], matrices.shape[0]
    group = _group(count, ends)
    selected = group.clamp(max=groups - 1)
    if isinstance(count, int) and count <= groups:
        result = torch.bmm(rows[:, None, :], matrices.index_select(0, selected)).squeeze(1)
    else:
        products = torch.matmul(rows, matrices).flatten(0, 1)
        result = products.index_select(
            0, selected * count + torch.arange(count, device=ends.device)
        )
    return torch.where((group < groups)[:, None], result, 0)


@decomposes("transformers::grouped_mm_fallback")
def grouped_mm_fallback(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return _rows_by_group(input, weight, offs)


_UNWRITTEN_ROWS = "torch does not write rows after the last group"


@decomposes(
    aten._grouped_mm.default,
    # torch exports it for bfloat16 only, with rows aligned to 16 bytes.
    cases=[
        case(_bf16(5, 8), _bf16(3, 8, 16, fixed=True), _ENDS, one_size=_UNWRITTEN_ROWS),
        case(_bf16(3, 8, fixed=True), _bf16(6, 8, 16, fixed=True), _FEW),
        case(
            _bf16(5, 8),
            _bf16(3, 8, 16, fixed=True),
            _ENDS,
            None,
            torch.bfloat16,
            one_size=_UNWRITTEN_ROWS,
        ),
        case(_bf16(3, 2, 8, fixed=True), _bf16(3, 8, 16, fixed=True)),
        case(_bf16(4, 8, fixed=True), _bf16(8, 16, fixed=True), _ENDS),
        case(
            _bf16(3, 8, 8, fixed=True),
            _bf16(8, 8, fixed=True),
            i32(3, values=(2, 2, 8), fixed=True),
        ),
    ],
)
def grouped_mm(
    x: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if bias is not None:
        raise ConversionError(
            "grouped_mm with a bias is not defined by torch yet\n  try   add the bias to the result"
        )
    return _product(x, mat2, offs).to(out_dtype or x.dtype)


def _product(x: Tensor, mat2: Tensor, offs: Tensor | None) -> Tensor:
    """Multiply; groups may split nothing, the rows, the columns, or the contracted axis."""
    if offs is None:
        return torch.bmm(x, mat2)
    if mat2.dim() == 3:
        return _rows_by_group(x, mat2, offs)
    if x.dim() == 3:
        return _rows_by_group(mat2.mT, x.mT, offs).mT
    group = _group(x.shape[1], offs)
    within = group == torch.arange(offs.shape[0], device=offs.device)[:, None]
    return torch.matmul(torch.where(within[:, None], x, 0), mat2)
