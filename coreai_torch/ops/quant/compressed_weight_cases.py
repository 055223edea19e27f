"""Test cases of the compression ops: every scheme, with constant weights."""

from __future__ import annotations

from typing import Any

import torch

from ...lowering.cases import T, bf16, case, f16, f32, i8, u8

E8M0 = torch.float8_e8m0fnu


def _weight(make: Any, *shape: int, **range_: Any) -> T:
    weight: T = make(*shape, constant=True, **range_)
    return weight


def _powers(*shape: int) -> T:
    return T(shape, E8M0, values=(0.5, 4.0, 1.0), constant=True)


def _indices(*shape: int, entries: int) -> T:
    return _weight(u8, *shape, high=entries - 1)


def _fp8(*shape: int, dtype: torch.dtype) -> T:
    return T(shape, dtype, low=-9, high=9, constant=True)


LUTS = [
    *(
        case(_indices(6, 5, entries=2**bits), _weight(f32, 1, 1, 2**bits, 1), 0)
        for bits in (1, 2, 3, 4, 6, 8)
    ),
    case(_indices(6, 4, entries=16), _weight(f16, 3, 1, 16, 1), 0),
    case(_indices(6, 4, entries=16), _weight(bf16, 2, 4, 16, 1), 1),
    case(_indices(3, 4, entries=4), _weight(f32, 1, 1, 4, 2), 0),
    case(_indices(4, 3, entries=4), _weight(f32, 2, 1, 4, 4), -1),
    case(_indices(4, 2, 3, 3, entries=16), _weight(f32, 2, 1, 1, 1, 16, 1), 0),
    case(_indices(2, 2, 2, 2, 2, entries=4), _weight(f32, 1, 1, 1, 1, 1, 4, 1), 2),
    case(_indices(7, entries=8), _weight(f32, 1, 8, 1), 0),
    case(_indices(6, 4, entries=16), _weight(i8, 1, 1, 16, 1), 0),
    # Tables that fill no supported index width: 32 entries (5 bits), 3 entries, 1 entry.
    case(_indices(6, 4, entries=32), _weight(f32, 1, 1, 32, 1), 0),
    case(_indices(6, 4, entries=3), _weight(f32, 2, 1, 3, 1), 0),
    case(_indices(6, 4, entries=1), _weight(f32, 1, 1, 1, 1), 0),
    # Indices computed at run time are always in range if the table has 256 entries.
    case(u8(6, 4, high=255, fixed=True), _weight(f32, 1, 1, 256, 1), 0),
    case(_indices(6, 4, entries=16), f32(2, 1, 16, 1, fixed=True), 0),
]


def _integers(bits: int, *shape: int, signed: bool = True) -> T:
    low = -(2 ** (bits - 1)) if signed else 0
    return _weight(i8 if signed else u8, *shape, low=low, high=low + 2**bits - 1)


def _dtype(bits: int, signed: bool = True) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, f"{'' if signed else 'u'}int{bits}")
    return dtype


BLOCKS = [
    *(
        case(
            _integers(bits, 4, 6, signed=signed),
            _weight(f32, 4, 2),
            _integers(bits, 4, 2, signed=signed),
            input_dtype=_dtype(bits, signed),
        )
        for bits, signed in [(b, True) for b in (1, 2, 3, 4, 6, 8)]
        + [(b, False) for b in (2, 4, 5)]
    ),
    *(
        case(
            _integers(bits, 4, 6, signed=signed),
            _weight(f32, 1, 1),
            None,
            _weight(f32, 1, 1),
            _dtype(bits, signed),
        )
        for bits, signed in ((2, True), (3, True), (4, False), (8, True))
    ),
    case(_integers(8, 4, 6), _weight(f32, 4, 1)),
    case(_integers(4, 4, 6), _weight(f16, 4, 3), None, _weight(f16, 4, 3), torch.int4),
    case(_integers(4, 4, 6), _weight(bf16, 2, 1), _integers(4, 2, 1), None, torch.int4),
    case(_integers(8, 4, 6), _weight(f16, 4, 3), output_dtype=torch.float32),
    case(_integers(8, 4, 6), _powers(4, 3), output_dtype=torch.float16),
    case(_integers(8, 2, 3, 4, 6), _weight(f32, 2, 1, 2, 3)),
    case(_integers(4, 8), _weight(f32, 2), input_dtype=torch.int4),
    case(_weight(u8, 4, 8, high=255), _powers(4, 2), output_dtype=torch.float32),
    case(_weight(u8, 4, 8, high=255), _powers(4, 2)),
    case(_weight(u8, 4, 8, high=255), _powers(4, 2), output_dtype=torch.bfloat16),
    *(
        case(_weight(u8, 4, 8, high=255), _weight(make, 4, 2), input_dtype=torch.float4_e2m1fn_x2)
        for make in (f32, f16)
    ),
    *(
        case(_fp8(4, 6, dtype=dtype), scale, output_dtype=torch.float32)
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
        for scale in (_weight(f32, 4, 3), _weight(f16, 1, 1), _powers(4, 3))
    ),
    case(f32(4, 6, fixed=True), _weight(f32, 4, 3)),
    case(f32(4, 6, fixed=True), _weight(f16, 4, 3)),
    case(_weight(f16, 4, 6), _powers(4, 3)),
    case(i8(4, 6, fixed=True), f32(4, 3, fixed=True), i8(4, 3, fixed=True)),
]

SPARSE = [
    case(_weight(make, 4), T((2, 4), torch.bool, values=(1, 0, 0, 1), constant=True))
    for make in (f32, f16, bf16, i8)
] + [
    case(_weight(f32, 6), T((3, 4), torch.uint8, values=(0, 1), constant=True)),
    case(f32(6, fixed=True), T((3, 4), torch.bool, values=(0, 1), constant=True)),
]
