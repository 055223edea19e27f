"""Convert torch dtypes and fake tensors to dialect types, with 64 bits narrowed to 32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from coreai._compiler.ir import (
    BF16Type,
    ComplexType,
    F16Type,
    F32Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    IntegerType,
    RankedTensorType,
    ShapedType,
    Type,
)

from ..errors import ConversionError

DYNAMIC: int = ShapedType.get_dynamic_size()

# Devices have no 64-bit numbers; only the Linux runtime supports them.
_NARROW = {
    torch.int64: torch.int32,
    torch.uint64: torch.uint32,
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}

_ELEMENT: dict[torch.dtype, Callable[[], Type]] = {
    torch.bool: lambda: IntegerType.get_signless(1),
    torch.int8: lambda: IntegerType.get_signed(8),
    torch.int16: lambda: IntegerType.get_signed(16),
    torch.int32: lambda: IntegerType.get_signed(32),
    torch.uint8: lambda: IntegerType.get_unsigned(8),
    torch.uint16: lambda: IntegerType.get_unsigned(16),
    torch.uint32: lambda: IntegerType.get_unsigned(32),
    torch.float16: lambda: F16Type.get(),
    torch.bfloat16: lambda: BF16Type.get(),
    torch.float32: lambda: F32Type.get(),
    torch.complex64: lambda: ComplexType.get(F32Type.get()),
    torch.float8_e4m3fn: lambda: Float8E4M3FNType.get(),
    torch.float8_e5m2: lambda: Float8E5M2Type.get(),
    torch.float8_e8m0fnu: lambda: Float8E8M0FNUType.get(),
}

BY_NAME = {
    "i1": torch.bool,
    "si8": torch.int8,
    "si16": torch.int16,
    "si32": torch.int32,
    "ui8": torch.uint8,
    "ui16": torch.uint16,
    "ui32": torch.uint32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "complex<f32>": torch.complex64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "f8E8M0FNU": torch.float8_e8m0fnu,
}


def narrow(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that replaces `dtype` on devices."""
    return _NARROW.get(dtype, dtype)


def element(dtype: torch.dtype) -> Type:
    """Return the element type for a torch dtype; 64-bit types are narrowed to 32."""
    make = _ELEMENT.get(narrow(dtype))
    if make is None:
        known = ", ".join(str(d).removeprefix("torch.") for d in _ELEMENT)
        raise ConversionError(
            f"{dtype} has no counterpart in Core AI\n  try   one of {known}, and the 64-bit "
            "types, which are narrowed to 32"
        )
    return make()


# Printing an element type takes 5 us, a look-up of its class 0.05 us; integers share one class.
_BY_CLASS = {
    F16Type: torch.float16,
    BF16Type: torch.bfloat16,
    F32Type: torch.float32,
    Float8E4M3FNType: torch.float8_e4m3fn,
    Float8E5M2Type: torch.float8_e5m2,
    Float8E8M0FNUType: torch.float8_e8m0fnu,
}


def dtype_of(type_: Any) -> torch.dtype:
    """Return the torch dtype of an element type or tensor type."""
    element = getattr(type_, "element_type", type_)
    return _BY_CLASS.get(type(element)) or BY_NAME[str(element)]


def tensor(shape: Sequence[Any], element_type: Type) -> RankedTensorType:
    """Return a tensor type; sizes other than plain numbers become dynamic."""
    return RankedTensorType.get([_extent(s) for s in shape], element_type)


def _extent(size: Any) -> int:
    """Return the static size; a symbol that export fixed is static, others are dynamic."""
    if isinstance(size, torch.SymInt):
        size = size.node.maybe_as_int()
    return size if type(size) is int and size >= 0 else DYNAMIC


def ranked(fake: Any) -> RankedTensorType:
    """Return the tensor type of a fake tensor, or of a symbolic number (rank 0)."""
    if isinstance(fake, torch.Tensor):
        return tensor(fake.shape, element(fake.dtype))
    return tensor((), element(scalar_dtype(fake)))


def scalar_dtype(number: Any) -> torch.dtype:
    """Return the narrow dtype for a Python or symbolic number."""
    if isinstance(number, bool | torch.SymBool):
        return torch.bool
    if isinstance(number, int | torch.SymInt):
        return torch.int32
    if isinstance(number, float | torch.SymFloat):
        return torch.float32
    if isinstance(number, complex):
        return torch.complex64
    raise ConversionError(
        f"{number!r} ({type(number).__name__}) is not a number that a program can store"
    )
