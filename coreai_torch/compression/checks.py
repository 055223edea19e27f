"""Argument checks of the compression ops; an error names the argument and the expected value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .scalars import FLOAT4, FLOAT8, PLAIN_FLOATS, SCALES_OF_TWO, Integers, integers


@dataclass(frozen=True)
class Data:
    """Element type of a compressed tensor: integers of a width, or floats of a dtype."""

    numbers: Integers | None
    dtype: torch.dtype

    @property
    def is_float4(self) -> bool:
        return bool(self.dtype == FLOAT4)


def _sizes(x: torch.Tensor) -> list[int]:
    return list(x.shape)


def lut(indices: torch.Tensor, table: torch.Tensor, axis: int) -> list[int]:
    """Check the operands of a table lookup and return the shape of the decompressed tensor."""
    rank = indices.dim()
    if indices.is_floating_point() or indices.is_complex():
        raise TypeError(f"indices must be integers, not {indices.dtype}")
    if rank == 0:
        raise ValueError("indices have rank 0, they must have at least one axis")
    if table.dim() != rank + 2:
        raise ValueError(
            f"lut {_sizes(table)} has rank {table.dim()}; for indices {_sizes(indices)} it must "
            f"be {rank + 2}: the number of blocks of each axis, entries, length of an entry"
        )
    _divides("lut", table.shape[:-2], "indices", indices.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for indices {_sizes(indices)}")
    shape = _sizes(indices)
    shape[axis] *= table.shape[-1]
    return shape


def within_table(name: str, indices: torch.Tensor, entries: int) -> None:
    """Raise unless every index has an entry in the table."""
    if indices.numel() == 0:
        return
    low, high = (int(v) for v in torch.aminmax(indices))
    if low < 0 or high >= entries:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} contains {wrong}, but the table has {entries} entries")


def within(name: str, values: torch.Tensor | None, numbers: Integers | None) -> None:
    """Raise unless every value is in the range of these integers; floats are not checked."""
    if values is None or numbers is None or values.numel() == 0:
        return
    kind = integers(values.dtype)
    if kind is not None and kind.low >= numbers.low and kind.high <= numbers.high:
        return
    low, high = (int(v) for v in torch.aminmax(values))
    if low < numbers.low or high > numbers.high:
        wrong = low if low < numbers.low else high
        raise ValueError(
            f"{name} contains {wrong}, outside of {numbers.name} ({numbers.low} to {numbers.high})"
        )


def data(input: torch.Tensor, scale: torch.Tensor, input_dtype: torch.dtype | None) -> Data:
    """Return the element type of `input`: `input_dtype` if given, otherwise its dtype.

    Bytes with f8E8M0 scales are pairs of 4-bit floats, as in the MX formats.
    """
    dtype = input.dtype if input_dtype is None else input_dtype
    if input.dtype == torch.uint8 and input_dtype is None and scale.dtype == SCALES_OF_TWO:
        dtype = FLOAT4
    if dtype == FLOAT4:
        if input.dtype not in (torch.uint8, FLOAT4):
            raise TypeError(
                f"input of 4-bit floats must be torch.uint8, two to a byte, not {input.dtype}"
            )
        return Data(None, FLOAT4)
    numbers = integers(dtype)
    if numbers is not None:
        if input.is_floating_point() or input.is_complex():
            raise TypeError(f"input is {input.dtype}, which cannot store {numbers.name}")
        return Data(numbers, dtype)
    if dtype not in (*FLOAT8, *PLAIN_FLOATS):
        raise TypeError(
            f"input is {dtype}; supported are integers of at most 8 bits (set input_dtype to "
            "their width), 4- and 8-bit floats, float16, bfloat16 and float32"
        )
    if dtype != input.dtype:
        raise TypeError(f"input is {input.dtype}, but input_dtype is {dtype}")
    return Data(None, dtype)


def blocks(
    input: torch.Tensor,
    kind: Data,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    minval: torch.Tensor | None,
) -> list[int]:
    """Check the operands of blockwise scaling and return the shape of the result."""
    shape = _sizes(input)
    if kind.is_float4:
        if not shape:
            raise ValueError("input of 4-bit floats, two to a byte, has rank 0; it needs an axis")
        shape[-1] *= 2
    _divides("scale", scale.shape, "input", shape)
    dequantized(kind, zero_point, minval)
    for name, given in (("zero_point", zero_point), ("minval", minval)):
        if given is not None and given.shape != scale.shape:
            raise ValueError(f"{name} {_sizes(given)} must have the shape of scale {_sizes(scale)}")
    _check_scale(scale)
    return shape


def dequantized(kind: Data, zero_point: torch.Tensor | None, minval: torch.Tensor | None) -> None:
    """Raise unless the offsets fit the data: only integers can have one."""
    _check_offset(zero_point, minval)
    if kind.numbers is None and (zero_point is not None or minval is not None):
        name = "minval" if zero_point is None else "zero_point"
        raise ValueError(f"{name} needs integer data, but input contains {kind.dtype}")


def quantized(
    dtype: torch.dtype, zero_point: torch.Tensor | None, minval: torch.Tensor | None
) -> Integers | None:
    """Return the integer type of `dtype`, or None for 8-bit floats."""
    _check_offset(zero_point, minval)
    numbers = integers(dtype)
    if numbers is None and dtype not in FLOAT8:
        raise TypeError(
            f"output_dtype is {dtype}; supported are integers of at most 8 bits and 8-bit floats"
        )
    if numbers is None and (zero_point is not None or minval is not None):
        name = "minval" if zero_point is None else "zero_point"
        raise ValueError(f"{name} needs integer data, but output_dtype is {dtype}")
    return numbers


def _check_offset(zero_point: torch.Tensor | None, minval: torch.Tensor | None) -> None:
    if zero_point is not None and minval is not None:
        raise ValueError("zero_point and minval express the same offset: pass only one of them")
    if zero_point is not None and (zero_point.is_floating_point() or zero_point.is_complex()):
        raise TypeError(f"zero_point must be an integer, not {zero_point.dtype}")
    if minval is not None and minval.dtype not in PLAIN_FLOATS:
        raise TypeError(f"minval must be float16, bfloat16 or float32, not {minval.dtype}")


def _check_scale(scale: torch.Tensor) -> None:
    if scale.dtype not in (*PLAIN_FLOATS, SCALES_OF_TWO):
        raise TypeError(f"scale must be float16, bfloat16, float32 or f8E8M0, not {scale.dtype}")


def result_dtype(kind: Data, scale: torch.Tensor, output_dtype: torch.dtype | None) -> torch.dtype:
    """Return `output_dtype` if given, otherwise the scale's dtype, otherwise the data's."""
    if output_dtype is not None:
        if output_dtype not in PLAIN_FLOATS:
            raise TypeError(
                f"output_dtype must be float16, bfloat16 or float32, not {output_dtype}"
            )
        return output_dtype
    if scale.dtype != SCALES_OF_TWO:
        return scale.dtype
    return kind.dtype if kind.dtype in PLAIN_FLOATS else torch.float32


def activation(input: torch.Tensor, axis: int, **parameters: torch.Tensor | None) -> None:
    """Raise unless each parameter has one element, or one for each index along the axis."""
    scale = parameters["scale"]
    assert scale is not None
    _check_scale(scale)
    rank = input.dim()
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} is out of range for input {_sizes(input)}")
    for name, given in parameters.items():
        if given is None or given.numel() == 1:
            continue
        size = input.shape[axis] if rank else 1
        lengths = [s for s in given.shape if s != 1] if given.dim() == rank else _sizes(given)
        fits = given.dim() in (1, rank) and len(lengths) == 1
        if not fits or (isinstance(size, int) and lengths[0] != size):
            raise ValueError(
                f"{name} {_sizes(given)} must have one element, or {size}: the size of axis "
                f"{axis} of input {_sizes(input)}"
            )


def along(parameter: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    """Reshape a parameter (one element, or one for each index of an axis) to broadcast."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    shape = [1] * rank
    shape[axis] = parameter.numel()
    return parameter.reshape(shape)


def sparse(nonzero_data: torch.Tensor, mask: torch.Tensor) -> None:
    """Raise unless the data has rank 1 and the mask is boolean."""
    if nonzero_data.dim() != 1:
        raise ValueError(f"nonzero_data {_sizes(nonzero_data)} must have rank 1")
    if mask.dtype not in (torch.bool, torch.uint8, torch.int8):
        raise TypeError(f"mask must be torch.bool, or 8-bit integers 0 and 1, not {mask.dtype}")
    if mask.dim() == 0:
        raise ValueError("mask has rank 0, it must have at least one axis")


def marked(nonzero_data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mask as booleans; it must mark one element for each of the data."""
    if mask.dtype != torch.bool:
        within_table("mask", mask, 2)
    positions = mask.to(torch.bool)
    if (count := int(torch.count_nonzero(positions))) != nonzero_data.numel():
        raise ValueError(
            f"mask marks {count} elements, but nonzero_data has {nonzero_data.numel()}"
        )
    return positions


def _divides(name: str, counts: Sequence[int], of: str, sizes: Sequence[int]) -> None:
    if len(counts) != len(sizes):
        raise ValueError(
            f"{name} {list(counts)} has rank {len(counts)}; it must have that of {of} "
            f"{list(sizes)}, {len(sizes)}"
        )
    for axis, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        if count == 0 or size % count:
            raise ValueError(
                f"{name} {list(counts)} does not divide {of} {list(sizes)} on axis {axis}"
            )
