"""Lower products of float8 matrices with scales."""

from __future__ import annotations

import torch

from ...lowering import case, decomposes
from ...lowering.cases import T, f32
from ...torch_compat import aten

_X = T((16, 16), torch.float8_e4m3fn, constant=True)
_ONE, _TWO = f32(values=(1.0,)), f32(values=(2.0,))
_FIXED = "the matrices are constants"
_BF16 = torch.bfloat16


@decomposes(
    aten._scaled_mm.default,
    cases=[
        case(_X, _X, _ONE, _TWO, out_dtype=torch.float32),
        case(_X, _X, f32(16, 1, low=0.5), f32(1, 16, low=0.5), out_dtype=_BF16, static_only=_FIXED),
        case(_X, _X, _ONE, _TWO, f32(16), out_dtype=torch.float32, static_only=_FIXED),
    ],
)
def scaled_mm(
    x: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    product = (x.to(torch.float32) * scale_a) @ (mat2.to(torch.float32) * scale_b)
    if bias is not None:
        product = product + bias
    if scale_result is not None and out_dtype is not None and out_dtype.itemsize == 1:
        product = product * scale_result
    return product.to(out_dtype or x.dtype)
