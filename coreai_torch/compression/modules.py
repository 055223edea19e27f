"""Layers with compressed weights or activation scales that return dense tensors."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from . import checks
from .subbyte import Float4Tensor, SubbyteTensor

__all__ = [
    "ActivationDequantizeModule",
    "ActivationQuantizeModule",
    "PalettizeModule",
    "ScaledPalettizeModule",
    "SparseModule",
    "WeightDequantizeModule",
    "wrap_for_parametrization",
]

ops = torch.ops.coreai


def _to_buffer(tensor: torch.Tensor) -> torch.Tensor:
    """Detach a tensor; packed integers are unpacked, so that other tools can read the buffer."""
    if isinstance(tensor, SubbyteTensor) and not isinstance(tensor, Float4Tensor):
        tensor = tensor.unpack()
    return tensor.detach()


class _Compressed(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Base of the layers; the tensors become buffers in the given order."""

    def _register(self, **tensors: torch.Tensor | None) -> None:
        for name, tensor in tensors.items():
            if tensor is None:
                # A plain attribute: torch.export fails on a root module with a None buffer.
                setattr(self, name, None)
            else:
                self.register_buffer(name, _to_buffer(tensor))


class PalettizeModule(_Compressed):
    """A weight stored as indices into tables of values, one table for each block."""

    indices: torch.Tensor
    lut: torch.Tensor

    def __init__(
        self, indices: torch.Tensor, lut: torch.Tensor, vector_axis: int | None = None
    ) -> None:
        super().__init__()
        more = lut.dim() - indices.dim() - 2
        if more > 0 and all(size == 1 for size in lut.shape[:more]):
            lut = lut.reshape(lut.shape[more:])  # coreai-opt 0.3.0: rank 4 for a bias
        self._register(indices=indices, lut=lut)
        self.vector_axis = 0 if vector_axis is None else vector_axis
        checks.lut(self.indices, self.lut, self.vector_axis)
        checks.within_table("indices", self.indices, self.lut.shape[-2])

    def forward(self) -> torch.Tensor:
        """Return the dense weight."""
        dense: torch.Tensor = ops.lut_to_dense(self.indices, self.lut, self.vector_axis)
        return dense


class ScaledPalettizeModule(PalettizeModule):
    """A palettized weight whose table is scaled: per channel, or because it is quantized."""

    scale: torch.Tensor
    zero_point: torch.Tensor | None
    minval: torch.Tensor | None

    def __init__(
        self,
        indices: torch.Tensor,
        lut: torch.Tensor,
        scale: torch.Tensor,
        vector_axis: int | None = None,
        zero_point: torch.Tensor | None = None,
        minval: torch.Tensor | None = None,
        input_dtype: torch.dtype | None = None,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(indices, lut, vector_axis)
        self._register(scale=scale, zero_point=zero_point, minval=minval)
        self.input_dtype, self.output_dtype = input_dtype, output_dtype
        self._check()

    def _check(self) -> None:
        """Raise now, rather than in the first forward, if the tensors do not fit together."""
        shape = checks.lut(self.indices, self.lut, self.vector_axis)
        dense = self.lut.new_empty(shape, device="meta")
        _check_scaled(self, dense)

    def forward(self) -> torch.Tensor:
        """Return the dense weight."""
        return _scaled(self, super().forward())


class WeightDequantizeModule(_Compressed):
    """A quantized weight: integers, or floats of 4 or 8 bits, with a scale for each block."""

    quantized_data: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None
    minval: torch.Tensor | None

    def __init__(
        self,
        quantized_data: torch.Tensor,
        scale: torch.Tensor,
        zero_point: torch.Tensor | None = None,
        minval: torch.Tensor | None = None,
        input_dtype: torch.dtype | None = None,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(quantized_data, Float4Tensor) and input_dtype is None:
            input_dtype = torch.float4_e2m1fn_x2
        self._register(
            quantized_data=quantized_data, scale=scale, zero_point=zero_point, minval=minval
        )
        self.input_dtype, self.output_dtype = input_dtype, output_dtype
        _check_scaled(self, self.quantized_data)

    def forward(self) -> torch.Tensor:
        """Return the dense weight."""
        return _scaled(self, self.quantized_data)


def _check_scaled(module: Any, input: torch.Tensor) -> None:
    data = checks.data(input, module.scale, module.input_dtype)
    given = module.scale, module.zero_point, module.minval
    checks.blocks(input, data, *given)
    checks.result_dtype(data, module.scale, module.output_dtype)
    checks.within("zero_point", module.zero_point, data.numbers)
    if not input.is_meta and not isinstance(input, SubbyteTensor):
        checks.within("quantized_data", input, data.numbers)


def _scaled(module: Any, input: torch.Tensor) -> torch.Tensor:
    dense: torch.Tensor = ops.constexpr_blockwise_shift_scale(
        input,
        module.scale,
        module.zero_point,
        module.minval,
        module.input_dtype,
        module.output_dtype,
    )
    return dense


class ActivationQuantizeModule(_Compressed):
    """Quantize floats to the integers (or 8-bit floats) of `output_dtype`."""

    scale: torch.Tensor
    zero_point: torch.Tensor | None
    minval: torch.Tensor | None

    def __init__(
        self,
        scale: torch.Tensor,
        output_dtype: torch.dtype,
        zero_point: torch.Tensor | None = None,
        minval: torch.Tensor | None = None,
        axis: int = 0,
    ) -> None:
        super().__init__()
        self._register(scale=scale, zero_point=zero_point, minval=minval)
        self.output_dtype, self.axis = output_dtype, axis
        numbers = checks.quantized(output_dtype, self.zero_point, self.minval)
        checks.within("zero_point", self.zero_point, numbers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the quantized tensor."""
        quantized: torch.Tensor = ops.quantize(
            x, self.scale, self.output_dtype, self.zero_point, self.minval, self.axis
        )
        return quantized


class ActivationDequantizeModule(_Compressed):
    """Dequantize integers (or 8-bit floats) to floats."""

    scale: torch.Tensor
    zero_point: torch.Tensor | None
    minval: torch.Tensor | None

    def __init__(
        self,
        scale: torch.Tensor,
        zero_point: torch.Tensor | None = None,
        minval: torch.Tensor | None = None,
        axis: int = 0,
        input_dtype: torch.dtype | None = None,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._register(scale=scale, zero_point=zero_point, minval=minval)
        self.axis, self.input_dtype, self.output_dtype = axis, input_dtype, output_dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the dequantized tensor."""
        dequantized: torch.Tensor = ops.dequantize(
            x,
            self.scale,
            self.zero_point,
            self.minval,
            self.axis,
            self.input_dtype,
            self.output_dtype,
        )
        return dequantized


class SparseModule(_Compressed):
    """A weight stored as a mask and the list of its nonzero elements.

    The list may itself be compressed: parametrize `nonzero_data`.
    """

    nonzero_data: torch.Tensor
    mask: torch.Tensor

    def __init__(self, nonzero_data: torch.Tensor, mask: torch.Tensor) -> None:
        super().__init__()
        self._register(nonzero_data=nonzero_data, mask=mask)
        checks.sparse(self.nonzero_data, self.mask)
        checks.marked(self.nonzero_data, self.mask)

    def forward(self) -> torch.Tensor:
        """Return the dense weight."""
        dense: torch.Tensor = ops.sparse_to_dense(self.nonzero_data, self.mask)
        return dense


@cache
def wrap_for_parametrization(cls: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass usable as a parametrization; it ignores the original weight."""

    def forward(self: Any, original: torch.Tensor) -> torch.Tensor:
        weight: torch.Tensor = cls.forward(self)
        return weight

    body = {"forward": forward, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(f"{cls.__name__}Parametrization", (cls,), body)
