"""Read a program as plain data: types, names, constants of every width, places of ops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from coreai._compiler.ir import DenseResourceElementsAttr
from dialect_programs import CARRIED, built, constant, gen, ops, packed, tensor_type

from coreai_torch.asset import reading, resources
from coreai_torch.asset.reading import DYNAMIC, Type

X = torch.ones(2, 3)


def read_back(body):
    return reading.read(built({"x": X}, lambda a: body(a) or {"y": a}))


def constants(program):
    found = program.functions["main"].body.ops
    return [op.attributes["value"] for op in found if op.name == "coreai.constant"]


@pytest.mark.parametrize(
    ("element", "bits", "want"),
    [
        ("ui1", 1, [0, 1, 1, 0, 1]),
        ("ui2", 2, [0, 1, 2, 3, 1]),
        ("ui3", 3, [7, 1, 2, 3, 5]),
        ("ui4", 4, [15, 1, 2, 3, 9]),
        ("ui6", 6, [63, 1, 2, 33, 9]),
        ("si2", 2, [0, 1, -2, -1, 1]),
        ("si4", 4, [-1, 1, -8, 7, 0]),
    ],
)
def test_narrow_constants_are_unpacked(element, bits, want):
    def body(a):
        packed([w % 2**bits for w in want], bits, element)

    (got,) = constants(read_back(body))
    assert got.tolist() == want
    assert got.dtype == (torch.int8 if element.startswith("si") else torch.uint8)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_narrow_constants_are_unpacked_from_the_file(bits, tmp_path):
    codes = np.random.default_rng(bits).integers(0, 2**bits, (3, 5))
    table = torch.arange(2.0**bits).reshape(1, 1, -1, 1)

    def body(a):
        indices = packed(codes, bits, f"ui{bits}")
        axis = constant(0, "si16")
        return {"y": gen.LutToDenseOp(indices, constant(table, "f32"), axis).result}

    asset = built({"x": X}, body).save_asset(tmp_path / "m.aimodel")
    shapes = {tuple(c.shape): c for c in constants(reading.read(asset))}
    assert shapes[3, 5].tolist() == codes.tolist()


def test_float4_constants_are_exact_in_float8():
    def body(a):
        packed(range(16), 4, "f4E2M1FN")

    (got,) = constants(read_back(body))
    half = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert got.float().tolist() == half + [-h for h in half]


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "si8", "si64", "ui32", "f64", "i1"])
def test_constants_of_byte_sized_types(element):
    values = (torch.arange(600).reshape(2, 300) % 2).to(CARRIED[element])

    def body(a):
        constant(values, element)

    (got,) = constants(read_back(body))
    assert got.dtype == values.dtype
    assert torch.equal(got, values)


def test_complex_zero_size_and_uniform_constants():
    def body(a):
        constant(torch.tensor([1 + 2j, 3 - 1j]), "complex<f32>")
        constant([], "si32", (0,))
        constant(2.5, "bf16", (300,))
        constant(True, "i1", (3,))

    got = constants(read_back(body))
    assert got[0].tolist() == [1 + 2j, 3 - 1j]
    assert (got[1].tolist(), got[1].dtype) == ([], torch.int32)
    assert got[2].tolist() == [2.5] * 300
    assert got[3].tolist() == [True] * 3


def test_aligned_blobs_of_an_asset_are_mapped_and_not_copied(tmp_path):
    weights = np.arange(1000, dtype=np.float32)

    def body(a):
        attribute = DenseResourceElementsAttr.get_from_buffer(
            weights, "weights", tensor_type([1000], "f32"), alignment=16
        )
        return {"y": gen.AddOp(a, gen.ConstantOp(value=attribute).result).result}

    asset = built({"x": torch.ones(1000)}, body).save_asset(tmp_path / "m.aimodel")
    blobs = resources.mapped(tmp_path / "m.aimodel" / "main.mlirb")
    assert list(blobs) == ["weights"]
    assert np.array_equal(blobs["weights"].numpy().view(np.float32), weights)
    (got,) = constants(reading.read(asset))
    assert got.data_ptr() % 4096 == blobs["weights"].data_ptr() % 4096  # in another mapping
    assert got.tolist() == weights.tolist()
    got[0] = 7.0  # writes to a private copy of the page, not to the file
    (again,) = constants(reading.read(asset))
    assert again[0] == 0.0


def test_types_are_parsed():
    cases = {
        "tensor<2x?xf16>": Type("tensor", (2, DYNAMIC), "f16"),
        "tensor<si32>": Type("tensor", (), "si32"),
        "tensor<4xcomplex<f32>>": Type("tensor", (4,), "complex<f32>"),
        "!coreai.handle<tensor<1x4xf32>>": Type("handle", (1, 4), "f32"),
        "!coreai.token": Type("token"),
        "tensor<4x6xui4, #coreai.sparse_tensor_encoding<bitmask, numNonZero = 13>>": Type(
            "sparse", (4, 6), "ui4"
        ),
    }
    for text, type_ in cases.items():
        assert reading._parsed(text) == type_
    assert str(cases["tensor<2x?xf16>"]) == "tensor<2x?xf16>"


def test_attributes_are_python_values():
    def body(a):
        ops.gelu(a, approximate="tanh")
        ops.pad(a, constant([0, 0, 1, 1], "ui32"), constant(0.0, "f32"), "reflect")

    found = {op.name: op for op in read_back(body).functions["main"].body.ops}
    assert found["coreai.gelu"].attributes == {"approximate": "tanh"}
    assert found["coreai.pad"].attributes == {"padding_mode": "reflect"}
    assert [str(t) for t in found["coreai.pad"].types] == ["tensor<2x5xf32>"]
