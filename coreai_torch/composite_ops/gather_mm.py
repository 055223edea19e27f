"""Matrix product with operands selected by index, as in a mixture of experts."""

from __future__ import annotations

from torch import Tensor, nn

from ._gather_mm import gather_mm


class GatherMM(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Compute `matmul(gather(lhs), gather(rhs))`; an operand without indices is not gathered.

    Indices (int32, int64, int16, uint8 or uint16) select along axis `num_batch_axes` of the
    operand, and their axes replace that axis: rhs `[2, E, D, H]` with indices `[B, T, K]` and
    `num_batch_axes=1` becomes `[2, B, T, K, D, H]`, and the product with lhs `[B, T, 1, 1, D]` is
    `[2, B, T, K, 1, H]`.
    """

    def __init__(self, num_batch_axes: int = 0) -> None:
        super().__init__()
        if num_batch_axes < 0:
            raise ValueError(f"GatherMM: num_batch_axes is {num_batch_axes}, it must be 0 or more")
        self.num_batch_axes = num_batch_axes
        self.version = 1

    def forward(
        self,
        lhs: Tensor,
        rhs: Tensor,
        lhs_indices: Tensor | None = None,
        rhs_indices: Tensor | None = None,
    ) -> Tensor:
        return gather_mm(lhs, rhs, lhs_indices, rhs_indices, self.num_batch_axes)

    def extra_repr(self) -> str:
        return f"num_batch_axes={self.num_batch_axes}"
