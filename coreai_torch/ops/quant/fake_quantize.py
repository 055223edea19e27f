"""Lower the fake_quantize ops: round values to a quantization grid, as floats.

Rounding is torch's: multiply by the inverse of the scale, round ties to even, and map NaN to the
minimum of the grid.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...lowering.cases import T, case, f16, f32, i32
from ...lowering.registry import decomposes
from ...torch_compat import aten

# Torch exports these ops with static sizes only.
_EDGES = (0.25, 0.75, 1.25, -0.25, 1e9, -1e9, float("inf"), float("-inf"), float("nan"), 63.5)
_ODD = f32(3, 10, values=_EDGES, fixed=True)
_SCALES = f32(5, fixed=True, values=(0.1, 0.25, 1.0, 0.037, 2.0))


def _wide(*shape: int) -> T:
    return f32(*shape, low=-9, high=9, fixed=True)


def _fake_quantize(
    x: Tensor, scale: Tensor, zero: Tensor | int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Return the nearest grid value, and a mask of the values that were not clamped."""
    quantized = torch.round(x.float() * (1.0 / scale)) + zero
    quantized = torch.where(quantized.isnan(), low - 1, quantized)
    result = (quantized.clamp(low, high) - zero) * scale
    return result.to(x.dtype), (quantized >= low) & (quantized <= high)


@decomposes(
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    cases=[
        case(_ODD, 0.5, 0, -128, 127),
        case(_wide(3, 10), 0.1, 3, -20, 20),
        case(f32(), 0.037, 5, 0, 255),
        case(f16(4, 5, low=-9, high=9, fixed=True), 0.1, 0, -8, 7),
    ],
)
def fake_quantize_per_tensor_affine_cachemask(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    one = torch.full((), scale, dtype=torch.float32, device=self.device)
    return _fake_quantize(self, one, zero_point, quant_min, quant_max)


@decomposes(
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    cases=[
        case(_ODD, f32(1, values=(0.5,)), i32(1, values=(0,)), i32(1, values=(1,)), -8, 7),
        case(_ODD, f32(1, values=(0.5,)), i32(1, values=(0,)), i32(1, values=(0,)), -8, 7),
        case(_wide(2, 5), f32(1, values=(0.1,)), i32(1, values=(3,)), i32(1, values=(1,)), 0, 15),
    ],
)
def fake_quantize_by_tensors(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    fake_quant_enabled: Tensor,
    quant_min: int,
    quant_max: int,
) -> tuple[Tensor, Tensor]:
    result, mask = _fake_quantize(
        self, scale.reshape(()).float(), zero_point.reshape(()), quant_min, quant_max
    )
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, result, self), mask | ~enabled


@decomposes(
    aten.fake_quantize_per_channel_affine_cachemask.default,
    cases=[
        case(_wide(3, 5), _SCALES, i32(5, fixed=True, values=(1, 0, -8, 7, 0)), 1, -8, 7),
        case(_wide(5, 2, 2), _SCALES, i32(5, fixed=True, values=(0, 3, -2, 1, 0)), 0, -128, 127),
    ],
)
def fake_quantize_per_channel_affine_cachemask(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    shape = [1] * self.dim()
    shape[axis] = -1
    scales, zeros = scale.float().reshape(shape), zero_point.reshape(shape)
    return _fake_quantize(self, scales, zeros, quant_min, quant_max)
