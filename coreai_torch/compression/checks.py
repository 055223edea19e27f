"""What the compression ops refuse, with the argument's name and what it should have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .scalars import FLOAT4, FLOAT8, PLAIN_FLOATS, SCALES_OF_TWO, Integers, integers


@dataclass(frozen=True)
class Data:
    """What the elements of a compressed tensor are: some integers, or floats of a dtype."""

    numbers: Integers | None
    dtype: torch.dtype

    @property
    def is_float4(self) -> bool:
        return bool(self.dtype == FLOAT4)


def _sizes(x: torch.Tensor) -> list[int]:
    return list(x.shape)


def lut(indices: torch.Tensor, table: torch.Tensor, axis: int) -> list[int]:
    """The shape of the decompressed tensor."""
    rank = indices.dim()
    if indices.is_floating_point() or indices.is_complex():
        raise TypeError(f"indices are integers, not {indices.dtype}")
    if rank == 0:
        raise ValueError("indices of rank 0: a table is looked up along at least one axis")
    if table.dim() != rank + 2:
        raise ValueError(
            f"lut {_sizes(table)} has rank {table.dim()}; for indices {_sizes(indices)} it is "
            f"{rank + 2}: the blocks of each axis, the entries, the length of one"
        )
    _divides("lut", table.shape[:-2], "indices", indices.shape)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is none of indices {_sizes(indices)}")
    shape = _sizes(indices)
    shape[axis] *= table.shape[-1]
    return shape


def within_table(name: str, indices: torch.Tensor, entries: int) -> None:
    """Every index has an entry."""
    if indices.numel() == 0:
        return
    low, high = (int(v) for v in torch.aminmax(indices))
    if low < 0 or high >= entries:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} holds {wrong}, but the table has {entries} entries")


def within(name: str, values: torch.Tensor | None, numbers: Integers | None) -> None:
    """Every value is one of those integers; floats hold what they can anyway."""
    if values is None or numbers is None or values.numel() == 0:
        return
    kind = integers(values.dtype)
    if kind is not None and kind.low >= numbers.low and kind.high <= numbers.high:
        return
    low, high = (int(v) for v in torch.aminmax(values))
    if low < numbers.low or high > numbers.high:
        wrong = low if low < numbers.low else high
        raise ValueError(
            f"{name} holds {wrong}, which is no {numbers.name} ({numbers.low} to {numbers.high})"
        )


def data(input: torch.Tensor, scale: torch.Tensor, input_dtype: torch.dtype | None) -> Data:
    """What `input` holds: what it is said to hold, or what its dtype says.

    Bytes with scales of the kind f8E8M0 are pairs of 4-bit floats, as in the MX formats.
    """
    said = input.dtype if input_dtype is None else input_dtype
    if input.dtype == torch.uint8 and input_dtype is None and scale.dtype == SCALES_OF_TWO:
        said = FLOAT4
    if said == FLOAT4:
        if input.dtype not in (torch.uint8, FLOAT4):
            raise TypeError(f"input of 4-bit floats is torch.uint8, two to a byte: {input.dtype}")
        return Data(None, FLOAT4)
    numbers = integers(said)
    if numbers is not None:
        if input.is_floating_point() or input.is_complex():
            raise TypeError(f"input is {input.dtype}, and cannot hold {numbers.name}")
        return Data(numbers, said)
    if said not in (*FLOAT8, *PLAIN_FLOATS):
        raise TypeError(
            f"input is {said}; integers of at most 8 bits (input_dtype says of how many), 4- and "
            "8-bit floats, float16, bfloat16 and float32 can be scaled"
        )
    if said != input.dtype:
        raise TypeError(f"input is {input.dtype}, but input_dtype says {said}")
    return Data(None, said)


def blocks(
    input: torch.Tensor,
    kind: Data,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    minval: torch.Tensor | None,
) -> list[int]:
    """The shape of the scaled tensor, whose blocks share a scale each."""
    shape = _sizes(input)
    if kind.is_float4:
        if not shape:
            raise ValueError("input of 4-bit floats, two to a byte, needs an axis")
        shape[-1] *= 2
    _divides("scale", scale.shape, "input", shape)
    dequantized(kind, zero_point, minval)
    for name, given in (("zero_point", zero_point), ("minval", minval)):
        if given is not None and given.shape != scale.shape:
            raise ValueError(f"{name} {_sizes(given)} has not the shape of scale {_sizes(scale)}")
    _check_scale(scale)
    return shape


def dequantized(kind: Data, zero_point: torch.Tensor | None, minval: torch.Tensor | None) -> None:
    """The offsets that go with this kind of data."""
    _one_offset(zero_point, minval)
    if kind.numbers is None and (zero_point is not None or minval is not None):
        name = "minval" if zero_point is None else "zero_point"
        raise ValueError(f"{name} goes with integers; input holds {kind.dtype}")


def quantized(
    dtype: torch.dtype, zero_point: torch.Tensor | None, minval: torch.Tensor | None
) -> Integers | None:
    """The integers of that dtype; None for 8-bit floats."""
    _one_offset(zero_point, minval)
    numbers = integers(dtype)
    if numbers is None and dtype not in FLOAT8:
        raise TypeError(f"output_dtype is {dtype}; integers of at most 8 bits and 8-bit floats can")
    if numbers is None and (zero_point is not None or minval is not None):
        name = "minval" if zero_point is None else "zero_point"
        raise ValueError(f"{name} goes with integers; output_dtype is {dtype}")
    return numbers


def _one_offset(zero_point: torch.Tensor | None, minval: torch.Tensor | None) -> None:
    if zero_point is not None and minval is not None:
        raise ValueError("zero_point and minval are two ways to say the same: give one of them")
    if zero_point is not None and (zero_point.is_floating_point() or zero_point.is_complex()):
        raise TypeError(f"zero_point is an integer, not {zero_point.dtype}")
    if minval is not None and minval.dtype not in PLAIN_FLOATS:
        raise TypeError(f"minval is float16, bfloat16 or float32, not {minval.dtype}")


def _check_scale(scale: torch.Tensor) -> None:
    if scale.dtype not in (*PLAIN_FLOATS, SCALES_OF_TWO):
        raise TypeError(f"scale is float16, bfloat16, float32 or f8E8M0, not {scale.dtype}")


def result_dtype(kind: Data, scale: torch.Tensor, said: torch.dtype | None) -> torch.dtype:
    """What is asked for, else the scale's dtype, else the data's."""
    if said is not None:
        if said not in PLAIN_FLOATS:
            raise TypeError(f"output_dtype is float16, bfloat16 or float32, not {said}")
        return said
    if scale.dtype != SCALES_OF_TWO:
        return scale.dtype
    return kind.dtype if kind.dtype in PLAIN_FLOATS else torch.float32


def activation(input: torch.Tensor, axis: int, **parameters: torch.Tensor | None) -> None:
    """Each parameter is one number, or one for each place on the axis."""
    scale = parameters["scale"]
    assert scale is not None
    _check_scale(scale)
    rank = input.dim()
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} is none of input {_sizes(input)}")
    for name, given in parameters.items():
        if given is None or given.numel() == 1:
            continue
        places = input.shape[axis] if rank else 1
        lengths = [s for s in given.shape if s != 1] if given.dim() == rank else _sizes(given)
        fits = given.dim() in (1, rank) and len(lengths) == 1
        if not fits or (isinstance(places, int) and lengths[0] != places):
            raise ValueError(
                f"{name} {_sizes(given)} is neither one number nor one for each of the "
                f"{places} places on axis {axis} of input {_sizes(input)}"
            )


def along(parameter: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    """One number, or one for each place on an axis, so that it broadcasts."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    shape = [1] * rank
    shape[axis] = parameter.numel()
    return parameter.reshape(shape)


def sparse(nonzero_data: torch.Tensor, mask: torch.Tensor) -> None:
    """The data is a list; the mask is made of yes and no."""
    if nonzero_data.dim() != 1:
        raise ValueError(f"nonzero_data {_sizes(nonzero_data)} is a list, so of rank 1")
    if mask.dtype not in (torch.bool, torch.uint8, torch.int8):
        raise TypeError(f"mask is torch.bool, or 0 and 1 in 8 bits, not {mask.dtype}")
    if mask.dim() == 0:
        raise ValueError("mask of rank 0: at least one axis is needed")


def marked(nonzero_data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The places, as many as there are data."""
    if mask.dtype != torch.bool:
        within_table("mask", mask, 2)
    places = mask.to(torch.bool)
    if (count := int(torch.count_nonzero(places))) != nonzero_data.numel():
        raise ValueError(f"mask marks {count} places for {nonzero_data.numel()} nonzero_data")
    return places


def _divides(name: str, parts: Sequence[int], of: str, whole: Sequence[int]) -> None:
    if len(parts) != len(whole):
        raise ValueError(
            f"{name} {list(parts)} has rank {len(parts)}; it is that of {of} {list(whole)}, "
            f"{len(whole)}"
        )
    for axis, (blocks_, size) in enumerate(zip(parts, whole, strict=True)):
        if blocks_ == 0 or size % blocks_:
            raise ValueError(
                f"{name} {list(parts)} does not divide {of} {list(whole)}: axis {axis}"
            )
