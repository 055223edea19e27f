"""Each compression scheme in a program: eager's numbers, and only the compressed bytes."""

import pytest
import torch
from conversion import close, compressed, ran, saved_bytes
from torch import nn

import coreai_torch
from coreai_torch._compression._floatx import Float4Tensor
from coreai_torch._compression.custom_layers import (
    PalettizeModule,
    ScaledPalettizeModule,
    SparseModule,
    WeightDequantizeModule,
)
from coreai_torch.compression.packing import packed_size

ROWS, COLUMNS = 64, 256
COUNT = ROWS * COLUMNS
# Bytes of a program besides its weights: ops, names, types and small constants.
PROGRAM = 2_600


class Scaled(nn.Module):
    """Elementwise product of weight and input, which needs no decomposition."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer() * x


def integers(low, high, *shape, dtype=torch.int8):
    return torch.randint(low, high, shape).to(dtype)


def quantized(bits, blocks, offset, dtype=torch.float32):
    half = 2 ** (bits - 1)
    parameters = {"scale": (torch.rand(blocks) * 0.2 + 0.01).to(dtype)}
    expected = packed_size(COUNT, bits) + _nbytes(parameters["scale"])
    if offset == "zero point":
        parameters["zero_point"] = integers(-half, half, *blocks)
        expected += packed_size(parameters["zero_point"].numel(), bits)
    if offset == "least":
        parameters["minval"] = torch.randn(blocks).to(dtype)
        expected += _nbytes(parameters["minval"])
    data = integers(-half, half, ROWS, COLUMNS)
    named = getattr(torch, f"int{bits}")
    return WeightDequantizeModule(data, **parameters, input_dtype=named), expected


def _nbytes(tensor):
    return tensor.numel() * tensor.element_size()


BLOCKS = {"tensor": (1, 1), "channel": (ROWS, 1), "block": (ROWS, COLUMNS // 32)}

INTEGERS = {
    f"int{bits} per {name}, {offset or 'symmetric'}": lambda b=bits, s=blocks, o=offset: quantized(
        b, s, o
    )
    for bits in (8, 4, 2)
    for name, blocks in BLOCKS.items()
    for offset in (None, "zero point", "least")
}


def palettized(bits, groups=1, vector=1, dtype=torch.float32):
    indices = integers(0, 2**bits, ROWS // vector, COLUMNS, dtype=torch.uint8)
    lut = torch.randn(groups, 1, 2**bits, vector).to(dtype)
    layer = PalettizeModule(indices, lut, vector_axis=0)
    return layer, packed_size(indices.numel(), bits) + _nbytes(lut)


TABLES = {
    **{f"table of {b} bits": lambda b=b: palettized(b) for b in (1, 2, 3, 4, 6, 8)},
    **{f"tables of {b} bits, grouped": lambda b=b: palettized(b, groups=8) for b in (1, 3, 4, 6)},
    **{f"vectors of {v}": lambda v=v: palettized(4, vector=v) for v in (2, 4)},
    "vectors of 2, grouped": lambda: palettized(3, groups=4, vector=2),
    "table in float16": lambda: palettized(4, dtype=torch.float16),
    "table in bfloat16": lambda: palettized(4, dtype=torch.bfloat16),
    "int8 table, scaled": lambda: scaled_table(),
}


def scaled_table():
    indices = integers(0, 16, ROWS, COLUMNS, dtype=torch.uint8)
    lut, scale = integers(-128, 128, 1, 1, 16, 1), torch.rand(ROWS, 1)
    layer = ScaledPalettizeModule(indices, lut, scale, zero_point=integers(-9, 9, ROWS, 1))
    return layer, COUNT // 2 + 16 + ROWS * 4 + ROWS


def sparse(zeros, bits=None):
    mask = torch.rand(ROWS, COLUMNS) >= zeros
    count = int(mask.sum())
    layer = SparseModule(torch.randn(count), mask)
    if bits is None:
        return layer, COUNT // 8 + count * 4
    inner = PalettizeModule(
        integers(0, 2**bits, count, dtype=torch.uint8), torch.randn(1, 2**bits, 1)
    )
    expected = COUNT // 8 + packed_size(count, bits) + 4 * 2**bits
    return compressed(layer, inner, "nonzero_data"), expected


MASKS = {
    "sparse 50 %": lambda: sparse(0.5),
    "sparse 75 %": lambda: sparse(0.75),
    "sparse 50 %, table of 4 bits": lambda: sparse(0.5, 4),
    "sparse 75 %, table of 6 bits": lambda: sparse(0.75, 6),
}


def float8(dtype, scale):
    data = torch.randn(ROWS, COLUMNS).to(dtype)
    return WeightDequantizeModule(data, scale, output_dtype=torch.float32), COUNT + _nbytes(scale)


def float4(dtype):
    data = Float4Tensor(integers(0, 256, ROWS, COLUMNS // 2, dtype=torch.uint8))
    scale = powers()
    layer = WeightDequantizeModule(data, scale, output_dtype=dtype)
    return layer, COUNT // 2 + _nbytes(scale)


def powers():
    return (2.0 ** torch.randint(-4, 3, BLOCKS["block"])).to(torch.float8_e8m0fnu)


FLOATS = {
    "float8 e4m3": lambda: float8(torch.float8_e4m3fn, torch.rand(ROWS, 1)),
    "float8 e5m2, mx": lambda: float8(torch.float8_e5m2, powers()),
    "float4, mx": lambda: float4(torch.float32),
    "float4, mx, to float16": lambda: float4(torch.float16),
    "int4 per block in float16": lambda: quantized(4, BLOCKS["block"], "least", torch.float16),
    "int4 per block in bfloat16": lambda: quantized(
        4, BLOCKS["block"], "zero point", torch.bfloat16
    ),
}

SCHEMES = {**INTEGERS, **TABLES, **MASKS, **FLOATS}


@pytest.mark.parametrize("name", SCHEMES)
def test_scheme(name):
    torch.manual_seed(0)
    layer, expected = SCHEMES[name]()
    x = torch.randn(COLUMNS).to(layer().dtype)
    model = Scaled(layer)
    exported = torch.export.export(model, (x,))
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    assert expected <= saved_bytes(program) <= expected + PROGRAM
    program.optimize()
    assert expected <= saved_bytes(program) <= expected + PROGRAM
    close(ran(program, x), model(x))
