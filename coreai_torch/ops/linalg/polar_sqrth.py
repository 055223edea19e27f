"""Lower linalg_polar through the singular values and linalg_matrix_sqrth through eigenvalues.

Both ops are new in torch 2.14.
"""

from __future__ import annotations

from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32
from ...torch_compat import aten

_POSITIVE = (4.0, 1.0, 0.5, 1.0, 3.0, -0.5, 0.5, -0.5, 2.0)
_INDEFINITE = (1.0, 2.0, 2.0, 1.0)


@decomposes(
    aten.linalg_polar.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_POSITIVE)),
        case(f32(4, 2, fixed=True)),
        case(f32(2, 3, 3, fixed=True)),
    ],
)
def linalg_polar(matrix: Tensor) -> tuple[Tensor, Tensor]:
    left, values, right = aten._linalg_svd.default(matrix)
    return left @ right, right.mT @ (values.unsqueeze(-1) * right)


@decomposes(
    aten.linalg_matrix_sqrth.default,
    cases=[
        case(f32(3, 3, fixed=True, values=_POSITIVE)),
        case(f32(2, 2, fixed=True, values=_INDEFINITE)),
        case(f32(2, 3, 3, fixed=True, values=_POSITIVE)),
    ],
)
def linalg_matrix_sqrth(matrix: Tensor) -> Tensor:
    """Return the square root of a symmetric matrix; negative eigenvalues count as zero."""
    values, vectors = aten._linalg_eigh.default(matrix)
    return vectors @ (values.clamp(min=0).sqrt().unsqueeze(-1) * vectors.mT)
