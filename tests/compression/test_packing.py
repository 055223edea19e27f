"""Packing of integers narrower than a byte: bit layout, round trip, errors."""

import pytest
import torch

from coreai_torch._compression._intx import pack_intx, pack_uintx
from coreai_torch.compression.packing import packed_size, unpack_intx, unpack_uintx

BITS = range(1, 9)


def by_hand(values, bits):
    stream = [(int(v) >> place) & 1 for v in values for place in range(bits)]
    stream += [0] * (-len(stream) % 8)
    return [
        sum(bit << i for i, bit in enumerate(stream[at : at + 8]))
        for at in range(0, len(stream), 8)
    ]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [0, 1, 5, 8, 37])
def test_pack_matches_reference_layout(bits, count):
    torch.manual_seed(bits)
    values = torch.randint(0, 2**bits, (count,))
    packed = pack_uintx(values, bits)
    assert packed.dtype == torch.uint8
    assert packed.tolist() == by_hand(values, bits)
    assert packed.numel() == packed_size(count, bits)
    assert unpack_uintx(packed, bits, count).tolist() == values.tolist()


@pytest.mark.parametrize("bits", BITS)
def test_signed_round_trip(bits):
    half = 2 ** (bits - 1)
    values = torch.arange(-half, half).repeat(3)[1:]
    assert unpack_intx(pack_intx(values, bits), bits, values.numel()).tolist() == values.tolist()


def test_rows_are_not_padded():
    assert pack_uintx(torch.tensor([[1, 2, 3], [4, 5, 6]]), 4).tolist() == [0x21, 0x43, 0x65]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float32, torch.bfloat16]
)
def test_pack_accepts_any_dtype_of_integers(dtype):
    assert pack_uintx(torch.tensor([1, 0, 1, 1]).to(dtype), 1).tolist() == [0b1101]


@pytest.mark.parametrize(
    ("pack", "value", "message"),
    [
        (pack_uintx, 16, "16 does not fit uint4, whose range is 0 to 15"),
        (pack_uintx, -1, "-1 does not fit uint4"),
        (pack_intx, 8, "8 does not fit int4, whose range is -8 to 7"),
        (pack_uintx, 0.5, "float32 values with a fraction cannot be packed as uint4"),
    ],
)
def test_value_out_of_range_raises(pack, value, message):
    with pytest.raises(ValueError, match=message):
        pack(torch.tensor([0, value]), 4)


def test_pack_of_nine_bits_raises():
    with pytest.raises(ValueError, match="9 bits"):
        pack_uintx(torch.tensor([1]), 9)
