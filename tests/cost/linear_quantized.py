"""Calls of quantization ops, which are linear in their inputs and outputs."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor

import coreai_torch.compression  # noqa: F401  registers the ops of the namespace coreai

from .family import Call, linear

aten, coreai = torch.ops.aten, torch.ops.coreai
pt2e = torch.ops.quantized_decomposed
_INT8 = (-128, 127, torch.int8)


class _Weights(torch.nn.Module):
    """Compressed weights of n rows, which the program expands."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("integers", torch.randint(-8, 8, (n, 32), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(n, 2))
        self.register_buffer("places", torch.randint(0, 16, (n, 32), dtype=torch.uint8))
        self.register_buffer("table", torch.randn(1, 1, 16, 1))
        mask = torch.arange(32) % 2 == 0
        self.register_buffer("mask", mask.repeat(n, 1))
        self.register_buffer("kept", torch.randn(n * 16))
        self.register_buffer("packed", torch.randint(0, 255, (n, 16), dtype=torch.uint8))
        self.register_buffer("pairs", torch.rand(1, n, 2))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [
            x @ coreai.constexpr_blockwise_shift_scale(self.integers, self.scale).T,
            x @ coreai.lut_to_dense(self.places, self.table, 0).T,
            x @ coreai.sparse_to_dense(self.kept, self.mask).T,
            aten._weight_int4pack_mm_for_cpu(x, self.packed, 32, self.pairs),
        ]


def _fake(x: Tensor, s: Tensor, z: Tensor) -> list[Tensor]:
    return [
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
        torch.fake_quantize_per_tensor_affine(x, s[0], z[0], -128, 127),
        torch.fake_quantize_per_channel_affine(x, s, z, 0, -128, 127),
    ]


def _channels(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n, 4), torch.rand(n) + 0.1, torch.zeros(n, dtype=torch.int32)


def _pt2e(x: Tensor, s: Tensor, z: Tensor) -> list[Tensor]:
    plain = pt2e.quantize_per_tensor(x, 0.1, 0, *_INT8)
    tensor = pt2e.quantize_per_tensor.tensor(x, s[0], z[0], *_INT8)
    channel = pt2e.quantize_per_channel(x, s[:4], z[:4], 1, *_INT8)
    token = pt2e.quantize_per_token(x, s[:, None], z[:, None], *_INT8)
    return [
        pt2e.dequantize_per_tensor(plain, 0.1, 0, *_INT8),
        pt2e.dequantize_per_tensor.tensor(tensor, s[0], z[0], *_INT8),
        pt2e.dequantize_per_channel(channel, s[:4], z[:4], 1, *_INT8),
        pt2e.dequantize_per_token(token, s[:, None], z[:, None], *_INT8, torch.float32),
        *pt2e.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8),
        *pt2e.choose_qparams_symmetric.tensor(x, -128, 127, 1e-5, torch.int8),
        *pt2e.choose_qparams_per_token_asymmetric(x, torch.int8),
    ]


class _Activations(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return coreai.dequantize(coreai.quantize(x, self.scale, torch.int8), self.scale)


def _weights(n: int) -> Call:
    return _Weights(n), (torch.randn(2, 32),)


QUANTIZED = (
    linear(
        """coreai::constexpr_blockwise_shift_scale coreai::lut_to_dense coreai::sparse_to_dense
        _weight_int4pack_mm_for_cpu""",
        _weights,
        like="coreai::unpack_bits",
        sizes="static",
    ),
    linear(
        "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine",
        lambda n: (_fake, _channels(n)),
        like="""fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams""",
        sizes="static",
    ),
    linear(
        """quantized_decomposed::quantize_per_tensor quantized_decomposed::quantize_per_token
        quantized_decomposed::quantize_per_channel quantized_decomposed::choose_qparams
        quantized_decomposed::choose_qparams_symmetric
        quantized_decomposed::choose_qparams_per_token_asymmetric
        quantized_decomposed::dequantize_per_tensor quantized_decomposed::dequantize_per_token
        quantized_decomposed::dequantize_per_channel""",
        lambda n: (_pt2e, _channels(n)),
        like="quantized_decomposed::dequantize_per_channel_group torchao::dequantize_affine",
    ),
    linear("coreai::quantize coreai::dequantize", lambda n: (_Activations(), (torch.randn(n),))),
)
