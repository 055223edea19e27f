"""The compression ops in eager torch, compared with straightforward reference code."""

import itertools
import subprocess
import sys

import pytest
import torch
from torch.library import opcheck

import coreai_torch.compression  # noqa: F401 - registers the ops

ops = torch.ops.coreai

SCHEMAS = {
    "lut_to_dense": "(Tensor indices, Tensor lut, SymInt axis) -> Tensor",
    "constexpr_blockwise_shift_scale": (
        "(Tensor input, Tensor scale, Tensor? zero_point=None, Tensor? minval=None, "
        "ScalarType? input_dtype=None, ScalarType? output_dtype=None) -> Tensor"
    ),
    "quantize": (
        "(Tensor input, Tensor scale, ScalarType output_dtype, Tensor? zero_point=None, "
        "Tensor? minval=None, SymInt axis=0) -> Tensor"
    ),
    "dequantize": (
        "(Tensor input, Tensor scale, Tensor? zero_point=None, Tensor? minval=None, "
        "SymInt axis=0, ScalarType? input_dtype=None, ScalarType? output_dtype=None) -> Tensor"
    ),
    "sparse_to_dense": "(Tensor nonzero_data, Tensor mask) -> Tensor",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name):
    assert str(getattr(ops, name).default._schema) == f"coreai::{name}{SCHEMAS[name]}"


@pytest.mark.slow  # imports torch in a new process
def test_ops_are_registered_after_importing_torch_and_the_package():
    code = "import torch, coreai_torch; print(torch.ops.coreai.quantize.default)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "coreai.quantize.default", found.stderr


def seeded(*shape, high=None, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    if high is None:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, high, shape, generator=generator).to(dtype)


def looked_up(indices, lut, axis):
    """Compute `lut_to_dense` one index at a time."""
    *blocks, _, vector = lut.shape
    shape = list(indices.shape)
    shape[axis] *= vector
    out = torch.empty(shape, dtype=lut.dtype)
    for place in itertools.product(*map(range, indices.shape)):
        table = tuple(p // (s // b) for p, s, b in zip(place, indices.shape, blocks, strict=True))
        for v in range(vector):
            target = list(place)
            target[axis] = place[axis] * vector + v
            out[tuple(target)] = lut[(*table, int(indices[place]), v)]
    return out


LUTS = {
    "one table": ((6, 4), (1, 1, 4, 1), 0),
    "grouped rows": ((6, 4), (3, 1, 4, 1), 0),
    "grouped both ways": ((6, 4), (2, 4, 4, 1), 1),
    "vectors along rows": ((3, 4), (1, 1, 4, 2), 0),
    "vectors along columns, grouped": ((4, 3), (2, 1, 4, 4), -1),
    "a convolution's weight": ((4, 2, 3, 3), (2, 1, 1, 1, 16, 1), 0),
    "a list": ((7,), (1, 8, 1), 0),
}


@pytest.mark.parametrize("name", LUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8], ids=str)
def test_lut_to_dense(name, dtype):
    shape, table, axis = LUTS[name]
    indices = seeded(*shape, high=table[-2], dtype=torch.uint8)
    lut = (seeded(*table) * 10).to(dtype)
    found = ops.lut_to_dense(indices, lut, axis)
    assert found.dtype == dtype
    assert torch.equal(found, looked_up(indices, lut, axis))


def test_blockwise_shift_scale():
    data = torch.tensor([[-8, 7, 3, 1], [0, 1, 2, 3]], dtype=torch.int8)
    scale = torch.tensor([[0.5, 2.0], [1.0, 3.0]])
    zero = torch.tensor([[1, -1], [0, 3]], dtype=torch.int8)
    plain = ops.constexpr_blockwise_shift_scale(data, scale)
    assert plain.tolist() == [[-4, 3.5, 6, 2], [0, 1, 6, 9]]
    shifted = ops.constexpr_blockwise_shift_scale(data, scale, zero, input_dtype=torch.int4)
    assert shifted.tolist() == [[-4.5, 3, 8, 4], [0, 1, -3, 0]]
    least = ops.constexpr_blockwise_shift_scale(data, scale, None, scale * 10, torch.int4)
    assert least.tolist() == [[5, 12.5, 42, 38], [18, 19, 60, 63]]


def test_result_dtype_defaults_to_the_scale_dtype():
    data, scale = torch.tensor([[3]], dtype=torch.int8), torch.tensor([[0.1]], dtype=torch.float16)
    assert ops.constexpr_blockwise_shift_scale(data, scale).dtype == torch.float16
    wide = ops.constexpr_blockwise_shift_scale(data, scale, output_dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert wide.item() == 3 * scale.float().item()


def test_bytes_with_e8m0_scales_are_pairs_of_4_bit_floats():
    codes = torch.arange(16, dtype=torch.uint8)
    packed = (codes[1::2] << 4 | codes[0::2]).reshape(1, 8)
    scale = torch.tensor([[2.0, 0.5]]).to(torch.float8_e8m0fnu)
    dense = ops.constexpr_blockwise_shift_scale(packed, scale, output_dtype=torch.float16)
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert dense.dtype == torch.float16
    assert dense.tolist() == [[2 * v for v in positive] + [-0.5 * v for v in positive]]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_8_bit_floats_are_scaled(dtype):
    data = torch.tensor([[1.5, -2.0, 0.25, 448.0]]).to(dtype)
    dense = ops.constexpr_blockwise_shift_scale(data, torch.tensor([[2.0]]))
    assert dense.tolist() == (data.float() * 2).tolist()


def test_quantize_rounds_ties_to_even_and_clamps():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0, float("inf"), float("nan")])
    one = torch.tensor(1.0)
    assert ops.quantize(x, one, torch.int8).tolist() == [0, 2, 2, 0, -2, 127, -128, 127, 0]
    three = torch.tensor(3, dtype=torch.uint8)
    assert ops.quantize(x, one, torch.uint8, three).tolist() == [3, 5, 5, 3, 1, 255, 0, 255, 0]
    assert ops.quantize(x, one, torch.int4).tolist() == [0, 2, 2, 0, -2, 7, -8, 7, 0]
    lowest = ops.quantize(x, one, torch.int8, minval=torch.tensor(-1.5))
    assert lowest.tolist() == [-126, -125, -124, -127, -128, 127, -128, 127, 0]


def test_quantize_along_an_axis():
    x, scale = torch.tensor([[1.0, 1.0], [2.0, 2.0]]), torch.tensor([0.5, 0.25])
    assert ops.quantize(x, scale, torch.int8, axis=0).tolist() == [[2, 2], [8, 8]]
    assert ops.quantize(x, scale, torch.int8, axis=1).tolist() == [[2, 4], [4, 8]]
    assert ops.quantize(x, scale.reshape(1, 2), torch.int8, axis=-1).tolist() == [[2, 4], [4, 8]]


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int4, torch.float8_e4m3fn], ids=str
)
def test_dequantize_inverts_quantize(dtype):
    x, scale = seeded(4, 6).clamp(-1.2, 1.2).abs(), torch.full((6,), 0.2)
    q = ops.quantize(x, scale, dtype, axis=1)
    back = ops.dequantize(q, scale, axis=1, input_dtype=None if dtype.is_floating_point else dtype)
    torch.testing.assert_close(back, x, rtol=0.07, atol=0.1)  # half a step, or half an fp8 digit


def test_sparse_to_dense_fills_the_mask():
    mask = torch.tensor([[0, 1, 0], [1, 0, 1]])
    for marks in (mask.bool(), mask.to(torch.uint8)):
        dense = ops.sparse_to_dense(torch.tensor([1.0, 2.0, 3.0]), marks)
        assert dense.tolist() == [[0, 1, 0], [2, 0, 3]]


def small(name):
    scale = torch.full((2, 2), 0.5)
    return {
        "lut_to_dense": (seeded(4, 6, high=4, dtype=torch.uint8), seeded(2, 1, 4, 2), 1),
        "constexpr_blockwise_shift_scale": (seeded(4, 6, high=9, dtype=torch.int8), scale),
        "quantize": (seeded(3, 4), torch.tensor(0.1), torch.int8),
        "dequantize": (seeded(3, 4, high=9, dtype=torch.int8), torch.tensor(0.1)),
        "sparse_to_dense": (seeded(2), torch.tensor([[True, False], [False, True]])),
    }[name]


@pytest.mark.parametrize("name", SCHEMAS)
def test_fake_implementation_agrees_with_the_real_one(name):
    checks = ("test_schema", "test_faketensor")
    opcheck(getattr(ops, name).default, small(name), test_utils=checks)


I8, U8 = torch.int8, torch.uint8
BAD = {
    "index past the table": (
        lambda: ops.lut_to_dense(torch.tensor([4], dtype=U8), torch.zeros(1, 4, 1), 0),
        ValueError,
        "indices contains 4, but the table has 4 entries",
    ),
    "table of another rank": (
        lambda: ops.lut_to_dense(torch.zeros(2, 2, dtype=U8), torch.zeros(4, 1), 0),
        ValueError,
        r"lut \[4, 1\] has rank 2; for indices \[2, 2\] it must be 4",
    ),
    "tables that do not divide": (
        lambda: ops.lut_to_dense(torch.zeros(5, 2, dtype=U8), torch.zeros(2, 1, 4, 1), 0),
        ValueError,
        r"lut \[2, 1\] does not divide indices \[5, 2\] on axis 0",
    ),
    "indices that are floats": (
        lambda: ops.lut_to_dense(torch.zeros(2), torch.zeros(1, 4, 1), 0),
        TypeError,
        "indices must be integers, not torch.float32",
    ),
    "axis out of range": (
        lambda: ops.lut_to_dense(torch.zeros(2, dtype=U8), torch.zeros(1, 4, 1), 1),
        ValueError,
        "axis 1 is out of range",
    ),
    "scale that does not divide": (
        lambda: ops.constexpr_blockwise_shift_scale(torch.zeros(4, 6, dtype=I8), torch.ones(4, 4)),
        ValueError,
        r"scale \[4, 4\] does not divide input \[4, 6\] on axis 1",
    ),
    "scale of another rank": (
        lambda: ops.constexpr_blockwise_shift_scale(torch.zeros(4, 6, dtype=I8), torch.ones(4)),
        ValueError,
        "has rank 1",
    ),
    "data too wide": (
        lambda: ops.constexpr_blockwise_shift_scale(
            torch.zeros(1, dtype=torch.int16), torch.ones(1)
        ),
        TypeError,
        "input is torch.int16",
    ),
    "value too wide": (
        lambda: ops.constexpr_blockwise_shift_scale(
            torch.tensor([8], dtype=I8), torch.ones(1), input_dtype=torch.int4
        ),
        ValueError,
        "input contains 8, outside of int4",
    ),
    "zero point of floats": (
        lambda: ops.constexpr_blockwise_shift_scale(
            torch.zeros(1, dtype=I8), torch.ones(1), torch.zeros(1)
        ),
        TypeError,
        "zero_point must be an integer",
    ),
    "zero point of another shape": (
        lambda: ops.constexpr_blockwise_shift_scale(
            torch.zeros(2, dtype=I8), torch.ones(2), torch.zeros(1, dtype=I8)
        ),
        ValueError,
        "zero_point .* must have the shape of scale",
    ),
    "two offsets": (
        lambda: ops.quantize(
            torch.ones(1), torch.tensor(1.0), I8, torch.tensor(0, dtype=I8), torch.tensor(0.0)
        ),
        ValueError,
        "pass only one of them",
    ),
    "zero point with floats": (
        lambda: ops.dequantize(
            torch.ones(1).to(torch.float8_e5m2), torch.tensor(1.0), torch.tensor(0, dtype=I8)
        ),
        ValueError,
        "zero_point needs integer data",
    ),
    "quantized to int16": (
        lambda: ops.quantize(torch.ones(1), torch.tensor(1.0), torch.int16),
        TypeError,
        "output_dtype is torch.int16",
    ),
    "scale for another axis": (
        lambda: ops.quantize(torch.ones(2, 3), torch.ones(3), I8, axis=0),
        ValueError,
        r"scale \[3\] must have one element, or 2: the size of axis 0",
    ),
    "scale per block of an activation": (
        lambda: ops.quantize(torch.ones(4, 4), torch.ones(2, 2), I8),
        ValueError,
        "must have one element",
    ),
    "too few data": (
        lambda: ops.sparse_to_dense(torch.ones(1), torch.tensor([True, True])),
        ValueError,
        "mask marks 2 elements, but nonzero_data has 1",
    ),
    "mask with a value of 2": (
        lambda: ops.sparse_to_dense(torch.ones(1), torch.tensor([2], dtype=U8)),
        ValueError,
        "mask contains 2",
    ),
    "data of rank 2": (
        lambda: ops.sparse_to_dense(torch.ones(1, 1), torch.tensor([[True]])),
        ValueError,
        "nonzero_data .* must have rank 1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_argument_raises(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
