"""Layers that scale or quantize the input of another layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .modules import ActivationDequantizeModule, ActivationQuantizeModule
from .weights import is_transposed_linear

ops = torch.ops.coreai

_NAME = "compressed_input"
_LARGEST = 127


class ScaleInput(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """Multiply the input by a factor for each element of its last axis."""

    factor: Tensor

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled input."""
        return x * self.factor


class QuantizeInput(nn.Module):  # type: ignore[misc]
    """Round the input to 8-bit integers with a scale that was calibrated."""

    def __init__(self, low: float, high: float, dtype: torch.dtype) -> None:
        super().__init__()
        # The range includes zero. A range that is not symmetric uses all integers.
        scale = max(high - low, 1e-12) / 255
        zero = round(-128 - low / scale)
        factor, shift = torch.tensor(scale), torch.tensor(zero, dtype=torch.int8)
        self.quantize = ActivationQuantizeModule(factor, torch.int8, shift)
        self.dequantize = ActivationDequantizeModule(
            factor, shift, input_dtype=torch.int8, output_dtype=dtype
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the rounded input."""
        rounded: Tensor = self.dequantize(self.quantize(x))
        return rounded


class QuantizeInputDynamically(nn.Module):  # type: ignore[misc]
    """Round the input to 8-bit integers with a scale that is computed from the input."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the rounded input."""
        scale = x.float().abs().amax().clamp(min=1e-12) / _LARGEST
        codes = ops.quantize(x, scale, torch.int8)
        rounded: Tensor = ops.dequantize(codes, scale, input_dtype=torch.int8, output_dtype=x.dtype)
        return rounded


def takes_floats(module: nn.Module) -> bool:
    """Return whether the layer multiplies its first argument by its weight."""
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return isinstance(module, (*kinds, *transposed)) or is_transposed_linear(module)


def attach(module: nn.Module, layer: nn.Module) -> None:
    """Apply a layer to the input of a module, after the layers that are attached already."""
    if not hasattr(module, _NAME):
        module.add_module(_NAME, nn.Sequential())
        module.register_forward_pre_hook(_transform_input, with_kwargs=True)
    getattr(module, _NAME).append(layer)


def _transform_input(module: nn.Module, args: Any, kwargs: Any) -> Any:
    layer = getattr(module, _NAME)
    if args:
        return (layer(args[0]), *args[1:]), kwargs
    name = next(iter(kwargs))
    return args, {**kwargs, name: layer(kwargs[name])}
