"""Tensor subclasses that store elements narrower than a byte packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..torch_compat import aten, make_wrapper_subclass, pytree
from . import torch_ops
from .packing import pack_intx, pack_uintx, packed_size

WIDTHS = (1, 2, 3, 4, 6)

# These ops apply to the packed bytes; all other ops run on the unpacked values.
_BYTE_OPS = {aten.detach.default, aten.alias.default, aten.clone.default}


class SubbyteTensor(torch.Tensor):  # type: ignore[misc]  # torch is untyped to mypy here
    """A tensor that stores its elements packed in `elem`, a plain tensor of bytes."""

    elem: torch.Tensor

    def unpack(self) -> torch.Tensor:
        """Return the elements as a plain tensor."""
        raise TypeError(
            f"{type(self).__name__} does not define how its elements are packed\n"
            "  try   use Float4Tensor, UintxTensor or IntxTensor, or a subclass with `unpack`"
        )

    def _like(self, elem: torch.Tensor) -> SubbyteTensor:
        return type(self)(elem)

    def for_op(self) -> torch.Tensor:
        """Return the tensor that the compression ops take."""
        return self.unpack()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"{type(self).__name__}({self.unpack()})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _BYTE_OPS or (func is aten._to_copy.default and _keeps_dtype(args[0], kwargs)):
            kwargs = {k: v for k, v in kwargs.items() if k != "dtype"}
            return args[0]._like(func(args[0].elem, *args[1:], **kwargs))
        ours = func.namespace == "coreai"
        args, kwargs = pytree.tree_map_only(
            SubbyteTensor, lambda t: t.for_op() if ours else t.unpack(), (args, kwargs)
        )
        return func(*args, **kwargs)


def _keeps_dtype(x: torch.Tensor, kwargs: dict[str, Any]) -> bool:
    return kwargs.get("dtype") in (None, x.dtype)


class Float4Tensor(SubbyteTensor):
    """4-bit floats (E2M1), two to a byte along the last axis, the first in the low half.

    In torch it has the shape of its values, and the dtype of its bytes, uint8.
    """

    @staticmethod
    def __new__(cls: Any, elem: torch.Tensor) -> Float4Tensor:
        _check_bytes(cls, elem)
        if elem.ndim == 0:
            raise ValueError("Float4Tensor needs an axis for pairs of values, not a scalar")
        shape = (*elem.shape[:-1], 2 * elem.shape[-1])
        tensor: Float4Tensor = make_wrapper_subclass(
            cls, shape, dtype=torch.uint8, device=elem.device
        )
        return tensor

    def __init__(self, elem: torch.Tensor) -> None:
        self.elem = elem

    def unpack(self) -> torch.Tensor:
        """Return the values as float32."""
        return torch_ops.float4_values(self.elem)

    def for_op(self) -> torch.Tensor:
        """Return the bytes, two values in each."""
        return self.elem

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["elem"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], meta: None, *sizes: Any) -> Float4Tensor:
        return Float4Tensor(inner["elem"])


class _PackedIntegers(SubbyteTensor):
    """Integers of a few bits each; in torch the tensor has an 8-bit dtype."""

    bits: int
    signed = False

    @staticmethod
    def __new__(
        cls: Any, elem: torch.Tensor, bits: int = 4, shape: Sequence[int] | None = None
    ) -> _PackedIntegers:
        _check_bytes(cls, elem)
        if bits not in WIDTHS:
            raise ValueError(f"{cls.__name__} does not support {bits} bits, only {WIDTHS}")
        shape = [elem.numel() * 8 // bits] if shape is None else shape
        needed = packed_size(int(torch.Size(shape).numel()), bits)
        if elem.numel() != needed:
            raise ValueError(
                f"{cls.__name__} of shape {list(shape)} takes {needed} bytes at {bits} bits per "
                f"element, not {elem.numel()}"
            )
        dtype = torch.int8 if cls.signed else torch.uint8
        tensor: _PackedIntegers = make_wrapper_subclass(
            cls, torch.Size(shape), dtype=dtype, device=elem.device
        )
        return tensor

    def __init__(
        self, elem: torch.Tensor, bits: int = 4, shape: Sequence[int] | None = None
    ) -> None:
        self.elem, self.bits = elem, bits

    @classmethod
    def from_values(cls, values: torch.Tensor, bits: int) -> _PackedIntegers:
        """Pack a plain tensor of integers that fit into `bits` bits."""
        pack = pack_intx if cls.signed else pack_uintx
        return cls(pack(values, bits), bits, values.shape)

    @classmethod
    def from_unpacked(cls, unpacked: torch.Tensor | float, nbits: int) -> _PackedIntegers:
        """Pack like `from_values`, also a Python number; the name that coreai-opt 0.3.0 calls."""
        return cls.from_values(torch.as_tensor(unpacked), nbits)

    @property
    def nbits(self) -> int:
        """The number of bits per element."""
        return self.bits

    def unpack(self) -> torch.Tensor:
        """Return the integers, one byte each."""
        unpacked: torch.Tensor = torch.ops.coreai.unpack_bits(
            self.elem, self.bits, list(self.shape), self.signed
        )
        return unpacked

    def _like(self, elem: torch.Tensor) -> _PackedIntegers:
        return type(self)(elem, self.bits, self.shape)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["elem"], (self.bits, tuple(self.shape))

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], meta: Any, *sizes: Any) -> _PackedIntegers:
        return cls(inner["elem"], *meta)


class UintxTensor(_PackedIntegers):
    """Unsigned integers of 1, 2, 3, 4 or 6 bits."""


class IntxTensor(_PackedIntegers):
    """Signed integers of 1, 2, 3, 4 or 6 bits."""

    signed = True


def _check_bytes(cls: type, elem: torch.Tensor) -> None:
    if elem.dtype != torch.uint8:
        raise TypeError(f"{cls.__name__} stores packed bytes (torch.uint8), not {elem.dtype}")
