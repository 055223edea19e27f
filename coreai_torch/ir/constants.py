"""Emit tensors as constants: weights are referenced, not copied, and emitted once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np
import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects.coreai.constant import create_elements_attr
from coreai._compiler.ir import (
    Attribute,
    Block,
    DenseElementsAttr,
    DenseResourceElementsAttr,
    InsertionPoint,
    Location,
    RankedTensorType,
    Value,
)

from ..errors import ConversionError, NarrowingError
from ..torch_compat import FakeTensor
from . import types
from .locations import of_weight

# Below this, the bytes go into the attribute itself; above, into a named resource.
_INLINE_ELEMENTS = 256
_SAMPLES = 64

Bytes: TypeAlias = np.ndarray[Any, Any]


def narrowed(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the tensor with 64 bits narrowed to 32; raise for numbers that do not fit."""
    target = types.narrow(tensor.dtype)
    if target is tensor.dtype:
        return tensor
    if tensor.numel() == 0:
        return tensor.to(target)
    if target.is_floating_point or target.is_complex:
        short = tensor.to(target)
        lost = short.isinf() & ~tensor.isinf()
        if bool(lost.any()):
            raise _too_wide(name, tensor[lost].flatten()[0].item(), tensor.dtype, target)
        return short
    info = torch.iinfo(target)
    low, high = _bounds(tensor)
    if low < info.min or high > info.max:
        raise _too_wide(name, low if low < info.min else high, tensor.dtype, target)
    return tensor.to(target)


def _bounds(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.dtype == torch.uint64:  # torch has no order of them
        numbers = tensor.detach().cpu().numpy()
        return int(numbers.min()), int(numbers.max())
    low, high = torch.aminmax(tensor)
    return int(low), int(high)


def fillers_narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """Return 64-bit integers in 32 bits, with the extremes of one dtype as those of the other.

    Return the tensor itself if no number exceeds 32 bits, or if other numbers than extremes do.
    """
    target = types.narrow(tensor.dtype)
    if tensor.dtype not in (torch.int64, torch.uint64) or not tensor.numel():
        return tensor
    if tensor.is_meta or isinstance(tensor, FakeTensor) or tensor.layout != torch.strided:
        return tensor
    wide, short = torch.iinfo(tensor.dtype), torch.iinfo(target)
    low, high = _bounds(tensor)
    if short.min <= low and high <= short.max:
        return tensor
    numbers = tensor.detach().cpu().numpy()
    least, greatest = (numbers == wide.min) & (wide.min < 0), numbers == wide.max
    kept = np.where(least | greatest, 0, numbers)
    if kept.min() < short.min or kept.max() > short.max:
        return tensor
    made = np.where(least, short.min, np.where(greatest, short.max, kept))
    return torch.from_numpy(made.astype(np.dtype(str(target).removeprefix("torch."))))


def _too_wide(name: str, value: Any, wide: torch.dtype, narrow: torch.dtype) -> NarrowingError:
    return NarrowingError(
        f"constant {name!r} holds {value!r}, which fits {wide} but not {narrow}, the widest "
        f"type of its kind on the devices\n  try   a value within {narrow} in the model"
    )


def _bytes(tensor: torch.Tensor) -> Bytes:
    # The binding ignores strides.
    flat = tensor.contiguous().reshape(-1)
    if flat.stride(0) != 1:  # one element counts as contiguous with any stride
        flat = flat.clone(memory_format=torch.contiguous_format)
    return np.asarray(flat.view(torch.uint8).numpy())


def is_splat(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one element, expanded."""
    return tensor.numel() == 1 or (tensor.numel() > 0 and all(s == 0 for s in tensor.stride()))


class Constants:
    """The constants of one module; equal tensors share one attribute."""

    def __init__(self) -> None:
        self._by_storage: dict[Any, Attribute] = {}
        self._by_look: dict[Any, list[tuple[Bytes, Attribute]]] = {}
        self._names: dict[str, int] = {}
        self._alive: list[Any] = []  # storages whose addresses are used as keys

    def attribute(self, tensor: torch.Tensor, name: str) -> Attribute:
        """Return the attribute of a tensor; equal tensors have the same one."""
        tensor = _plain(tensor, name)
        short = tensor.numel() < _INLINE_ELEMENTS or is_splat(tensor)
        if short and not tensor.is_complex():  # the binding aborts on complex elements
            return inline(narrowed(tensor, name))
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if key not in self._by_storage:
            self._alive.append(tensor)
            self._by_storage[key] = self._shared(narrowed(tensor, name), name)
        return self._by_storage[key]

    def _shared(self, tensor: torch.Tensor, name: str) -> Attribute:
        """Return one attribute per content; all bytes are compared only if samples agree."""
        return self._resource(_bytes(tensor), _type_of(tensor), name)

    def _resource(self, raw: Bytes, type_: RankedTensorType, name: str) -> Attribute:
        step = max(1, raw.size // _SAMPLES)
        look = (type_, raw[::step].tobytes())
        for other, attribute in self._by_look.setdefault(look, []):
            if np.array_equal(other, raw):
                return attribute
        attribute = DenseResourceElementsAttr.get_from_buffer(raw, self._unique(name), type_)
        self._by_look[look].append((raw, attribute))
        return attribute

    def packed(
        self,
        source: torch.Tensor,
        type_: RankedTensorType,
        pack: Callable[[torch.Tensor], torch.Tensor],
        name: str,
    ) -> Attribute:
        """Return the attribute of `pack(source)`; one for each tensor and type."""
        source = _plain(source, name)
        key = (source.data_ptr(), source.dtype, tuple(source.shape), source.stride(), str(type_))
        if key not in self._by_storage:
            self._alive.append(source)
            raw = _bytes(pack(source))
            if source.numel() < _INLINE_ELEMENTS:
                attribute = create_elements_attr(Location.unknown(), type_, raw)
            else:
                attribute = self._resource(raw, type_, name)
            self._by_storage[key] = attribute
        return self._by_storage[key]

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}.{count}" if count else name


def as_stored(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the elements of a constant as the program has them."""
    return narrowed(_plain(tensor, name), name)


def compacted(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of equal elements as one element, expanded, which is stored once."""
    if tensor.numel() < _INLINE_ELEMENTS or is_splat(tensor):
        return tensor
    first = tensor.flatten()[0]
    if bool((tensor == first).all()) and (first != 0 or _has_one_bit_pattern(tensor)):
        return first.clone().expand(tensor.shape)
    return tensor


def _has_one_bit_pattern(tensor: torch.Tensor) -> bool:
    """Return whether all elements have the same bits: 0.0 and -0.0 compare equal."""
    rows = tensor.resolve_conj().resolve_neg().contiguous().view(-1, 1).view(torch.uint8)
    return bool((rows == rows[0]).all())


def _type_of(tensor: torch.Tensor) -> RankedTensorType:
    return types.tensor(tuple(tensor.shape), types.element(tensor.dtype))


def _plain(tensor: torch.Tensor, name: str) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        raise ConversionError(
            f"constant {name!r} has no data (it lives on {tensor.device})\n"
            "  try   loading the weights before exporting"
        )
    if tensor.layout != torch.strided:
        raise ConversionError(
            f"constant {name!r} has layout {tensor.layout}\n  try   tensor.to_dense()"
        )
    if tensor.is_quantized:
        raise ConversionError(
            f"constant {name!r} is a quantized tensor\n  try   tensor.dequantize()"
        )
    return tensor.cpu().resolve_conj().resolve_neg()


def inline(tensor: torch.Tensor) -> Attribute:
    """Return an attribute with inline bytes; a splat stores one element."""
    type_ = _type_of(tensor)
    if not is_splat(tensor):
        return create_elements_attr(Location.unknown(), type_, _bytes(tensor))
    one = _bytes(tensor.as_strided((1,), (1,)))
    if tensor.dtype == torch.bool:  # the binding reads booleans as bits, 255 as all of them set
        one = one * np.uint8(255)
    return DenseElementsAttr.get(one, type=type_)


def emit(attribute: Attribute, block: Block | None = None, weight: str = "") -> Value:
    """Emit a constant at the current place, or at the head of a block.

    The name of a weight that is stored without one is in the location.
    """
    named = weight and not isinstance(attribute, DenseResourceElementsAttr)
    with (
        nullcontext() if block is None else InsertionPoint.at_block_begin(block),
        of_weight(weight) if named else Location.current,
    ):
        return gen.ConstantOp(value=attribute).result
