"""Ops and types that the converter never emits: compare `to_torch` with the runtime.

Where the two differ, the definition of the dialect decides; a separate test lists these ops."""

from __future__ import annotations

import numpy as np
import pytest
import runtime
import torch
from case_runner import TOLERANCE
from coreai._compiler.ir import InsertionPoint
from coreai.runtime import NDArray
from dialect_programs import CARRIED, Attribute, built, constant, gen, ops, packed, tensor_type

from coreai_torch import to_torch

INTEGERS = ("si8", "si16", "si32", "si64", "ui8", "ui16", "ui32", "ui64")
FLOATS = ("f32", "f16", "bf16", "f64")
NAN, INF = float("nan"), float("inf")
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 0.25, INF, -INF, NAN, 6.0)


def i32(values):
    return constant(values, "si32")


def u32(*values):
    return constant(list(values), "ui32")


def flag(value):
    return constant(value, "i1")


def mode(kind, name):
    return Attribute.parse(f"#coreai.{kind}<{name}>")


def as_array(value):
    """Return an array for the runtime; these programs keep 64 bits, unlike converted ones."""
    wide = value.dtype in (torch.int64, torch.uint64, torch.float64)
    return NDArray(value.numpy()) if wide else runtime.ndarray(value)


def check(feeds, body, tolerance=None):
    program = built(feeds, body)
    want = runtime.run(program, {name: as_array(value) for name, value in feeds.items()})
    got = to_torch(program).function("main")(feeds)
    assert list(got) == list(want)
    for name, value in want.items():
        assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape), name
        relative, absolute = tolerance or TOLERANCE.get(value.dtype, (0, 0))
        if value.dtype == torch.float64:
            relative, absolute = TOLERANCE[torch.float32]
        torch.testing.assert_close(
            got[name],
            value,
            rtol=relative,
            atol=absolute,
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )


BINARY = {
    "add": gen.AddOp,
    "sub": gen.SubOp,
    "mul": gen.MulOp,
    "divide": gen.DivideOp,
    "floor_divide": gen.FloorDivideOp,
    "modulo": gen.ModuloOp,
    "maximum": gen.MaximumOp,
    "minimum": gen.MinimumOp,
    "equal": gen.EqualOp,
    "not_equal": gen.NotEqualOp,
    "greater": gen.GreaterOp,
}
BITS = {
    "bitwise_and": gen.BitwiseAndOp,
    "bitwise_or": gen.BitwiseOrOp,
    "bitwise_xor": gen.BitwiseXorOp,
}


def extremes(element):
    info = torch.iinfo(CARRIED[element])
    top = min(info.max, 2**63 - 1)  # torch cannot create tensors of larger numbers
    x = [info.min, top, 7, 100, -7 if info.min else 3, 1, 0]
    y = [1, 1, 2, 3, 3, top, 5]
    return (torch.tensor(v, dtype=CARRIED[element]) for v in (x, y))


@pytest.mark.parametrize("element", INTEGERS)
def test_integer_arithmetic_wraps_and_divides_like_the_runtime(element):
    x, y = extremes(element)
    check(
        {"x": x, "y": y},
        lambda a, b: {name: op(a, b).result for name, op in {**BINARY, **BITS}.items()},
    )


def along_axes(x, element):
    one, both = i32([1]), i32([0, 1])
    part = gen.SliceOp(x, i32([0, 1]), i32([1, 6]), i32([1, 1])).result
    places = i32([[2, -5, 2, 3, 6]])  # an index out of bounds corrupts the runtime
    pads = ("reflect", "symmetric", "circular", "replicate")
    return {
        "sum": gen.ReduceSumOp(x, one).result,
        "max": gen.ReduceMaxOp(x, one).result,
        "min": gen.ReduceMinOp(x, both).result,
        "argmax": gen.ArgmaxOp(x, i32(1)).result,
        "relu": gen.ReLUOp(x).result,
        "abs": gen.AbsOp(x).result,
        "descending": gen.SortOp(x.type, x, i32(1), flag(True), flag(True)).result,
        "ascending": gen.SortOp(x.type, x, i32(-1), flag(False), flag(True)).result,
        "order": gen.ArgSortOp(x, i32(1), flag(True), flag(True)).result,
        "non_zero": gen.NonZeroOp(x).result,
        "concat": gen.ConcatOp(i32(0), [x, x]).result,
        "reverse": gen.ReverseOp(x, one).result,
        "tile": gen.TileOp(x, u32(2)).result,
        "slice": gen.SliceOp(x, i32([-9, 1]), i32([99, -1]), i32([1, 2])).result,
        "backwards": gen.SliceOp(x, i32([0, -2]), i32([1, 1]), i32([1, -3])).result,
        "where": gen.WhereOp(gen.GreaterOp(x, x).result, x, x).result,
        "pad": ops.pad(x, u32(1, 0, 2, 1), constant(_five(element), element), "constant"),
        **{
            how: ops.pad(x, u32(0, 0, 2, 1), constant(_five(element), element), how) for how in pads
        },
        "gather": gen.GatherAlongAxisOp(x, i32([[1, 0, 3]]), i32(1)).result,
        "gather_nd": gen.GatherNdOp(x, i32([[0, 1], [0, -2]])).result,
        **{
            f"scatter_{how}": gen.ScatterAlongAxisOp(
                x.type, x, places, part, i32(1), scatter_mode=mode("scatter_mode", how)
            ).result
            for how in ("update", "add", "min", "max")
        },
    }


def _five(element):
    return 5.0 if "f" in element else 5


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS])
def test_ops_along_axes(element):
    x = torch.tensor([[3, 0, 7, 100, 2, 1, 5]], dtype=CARRIED[element])
    check({"x": x}, lambda a: along_axes(a, element))


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS])
def test_products_scans_splits_and_shapes(element):
    x = torch.tensor([[1, 2, 3], [2, 1, 0]], dtype=CARRIED[element])

    def body(a):
        first, rest = ops.split(a, constant(2, "ui32"), i32(1))
        one, nine, three = (constant(float(v) if "f" in element else v, element) for v in (1, 9, 3))
        return {
            "matmul": gen.BatchMatmulOp(a, gen.TransposeOp(a, u32(1, 0)).result).result,
            "product": gen.ReduceProductOp(a, i32([1])).result,
            "pow": gen.PowOp(a, a).result,
            "range": gen.RangeOp(one, nine, three).result,
            **{
                how: ops.scan(a, constant(1, "ui32"), flag(how == "max"), how)
                for how in ("sum", "product", "min", "max")
            },
            "broadcast": gen.BroadcastToOp(a, u32(2, 2, 3)).result,
            "in_dims": gen.BroadcastInDimsOp(
                gen.ExpandDimsOp(a, i32([1])).result, u32(4), i32([-2])
            ).result,
            "update": gen.SliceUpdateOp(a, i32([0, 1]), i32([2, 3]), i32([1, 1]), first).result,
            "rest": rest,
            "shape": gen.GetShapeOp(a).result,
            "shapes": gen.BroadcastShapesOp(
                tensor_type([3], "ui32"), u32(3, 1, 5), u32(4, 1)
            ).result,
        }

    check({"x": x}, body)


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS])
def test_pooling_and_interpolation(element):
    x = torch.arange(2 * 2 * 5 * 5).reshape(2, 2, 5, 5).remainder(11).to(CARRIED[element])

    def pooled(a, size, kernel, stride, dilation, ceil):
        type_ = tensor_type([2, 2, size, size], element)
        return gen.MaxPool2dOp(
            type_, a, u32(*kernel), u32(*stride), u32(*dilation), flag(ceil)
        ).result

    def body(a):
        scale, none = constant([1.0, 1.0, 1.6, 1.6], "f32"), constant([0.0] * 4, "f32")
        points = constant([[0.2, 1.0, 2.5, 3.1], [1.0, 3.0, -2.0, 9.0]], "f32")
        return {
            "max": pooled(a, 2, (2, 2), (2, 2), (1, 1), False),
            "ceil": pooled(a, 3, (2, 2), (2, 2), (1, 1), True),
            "dilated": pooled(a, 3, (2, 2), (1, 1), (2, 2), False),
            "sum": gen.SumPool2dOp(a, u32(2, 2), u32(2, 2), u32(1, 1)).result,
            "sum_dilated": gen.SumPool2dOp(a, u32(2, 2), u32(1, 1), u32(2, 2)).result,
            **{
                f"resized_{how}": ops.interpolate(
                    a, i32([2, 2, 8, 8]), scale, none, mode("interpolation_mode", how)
                )
                for how in ("linear", "nearest_neighbor")
            },
            **{
                f"sampled_{how}": ops.interpolate_coordinates(
                    a, points, mode("interpolation_mode", how)
                )
                for how in ("linear", "nearest_neighbor")
            },
        }

    check({"x": x}, body)


UNARY = {
    "acos": gen.AcosOp,
    "acosh": gen.AcoshOp,
    "asin": gen.AsinOp,
    "asinh": gen.AsinhOp,
    "atan": gen.AtanOp,
    "atanh": gen.AtanhOp,
    "cos": gen.CosOp,
    "cosh": gen.CoshOp,
    "erf": gen.ErfOp,
    "exp": gen.ExpOp,
    "log": gen.LogOp,
    "relu": gen.ReLUOp,
    "round": gen.RoundOp,
    "rsqrt": gen.RsqrtOp,
    "sigmoid": gen.SigmoidOp,
    "silu": gen.SiluOp,
    "sin": gen.SinOp,
    "sinh": gen.SinhOp,
    "sqrt": gen.SqrtOp,
    "tan": gen.TanOp,
    "tanh": gen.TanhOp,
}


@pytest.mark.parametrize("element", FLOATS)
def test_float_functions_at_special_values(element):
    check(
        {"x": torch.tensor(EDGES, dtype=CARRIED[element])},
        lambda a: {
            **{name: op(a).result for name, op in UNARY.items()},
            **{f"gelu_{how}": ops.gelu(a, approximate=how) for how in ("none", "tanh", "sigmoid")},
        },
    )


@pytest.mark.parametrize("element", FLOATS)
def test_float_arithmetic_of_special_values(element):
    x = torch.tensor(EDGES, dtype=CARRIED[element])
    x, y = x.repeat(len(EDGES)), x.repeat_interleave(len(EDGES))
    agreed = {n: op for n, op in {**BINARY, "pow": gen.PowOp}.items() if n != "floor_divide"}
    check({"x": x, "y": y}, lambda a, b: {n: op(a, b).result for n, op in agreed.items()})
    finite = x.isfinite() & y.isfinite()
    check({"x": x[finite], "y": y[finite]}, lambda a, b: {"q": gen.FloorDivideOp(a, b).result})


def test_ops_where_the_runtime_differs_from_the_dialect():
    x = torch.tensor([INF, -INF, 1.0])
    two = torch.tensor([2.0, 2.0, NAN])
    program = built(
        {"x": x, "y": two},
        lambda a, b: {
            "quotient": gen.FloorDivideOp(
                a, b
            ).result,  # the dialect says "inf // finite: inf"; the runtime gives NaN
            "least": ops.scan(b, constant(0, "ui32"), flag(False), "min"),  # the runtime skips NaN
        },
    )
    got = to_torch(program)(x, two)
    torch.testing.assert_close(got["quotient"], torch.tensor([INF, -INF, NAN]), equal_nan=True)
    torch.testing.assert_close(got["least"], torch.tensor([2.0, 2.0, NAN]), equal_nan=True)
    other = runtime.run(program, {"x": x, "y": two})
    assert bool(other["quotient"].isnan().all())
    assert other["least"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("element", FLOATS)
def test_sorting_and_maxima_with_nan(element):
    row = torch.tensor(EDGES, dtype=CARRIED[element])
    check(
        {"x": torch.stack([row, row.flip(0)])},
        lambda a: {
            "argmax": gen.ArgmaxOp(a, i32(1)).result,
            "descending": gen.ArgSortOp(a, i32(1), flag(True), flag(True)).result,
            "ascending": gen.ArgSortOp(a, i32(1), flag(False), flag(True)).result,
            "max": gen.ReduceMaxOp(a, i32([1])).result,
            "softmax": gen.SoftmaxOp(a, i32(1)).result,
            "non_zero": gen.NonZeroOp(a).result,
        },
    )


VALUES = {
    "f32": (0.0, -0.6, 1.5, 2.5, 300.0, -300.0, 3e9, -3e9, 5e9, 1e19, -1e19, INF, -INF, NAN),
    "f16": (0.0, -0.6, 2.5, 300.0, 65504.0, INF, -INF, NAN),
    "bf16": (0.0, -0.6, 2.5, 300.0, 3e38, INF, -INF, NAN),
    "f64": (0.0, 1.5, 1e300, -1e300, NAN, INF),
    "si8": (0, 1, -1, 127, -128),
    "si16": (0, -(2**15), 2**15 - 1, -129, 300),
    "si32": (0, 1, -1, 128, 255, 256, -129, 2**15, 2**16, 2**31 - 1, -(2**31), 2**24 + 1),
    "si64": (0, -1, 2**40, -(2**40), 2**63 - 1, -(2**63)),
    "ui8": (0, 1, 200, 255),
    "ui16": (0, 40000, 65535),
    "ui32": (0, 1, 2**31, 2**32 - 1),
    "ui64": (0, 2**40, 2**63 - 1),
    "i1": (True, False),
}


@pytest.mark.parametrize("element", VALUES)
def test_casts_saturate(element):
    x = torch.tensor(VALUES[element], dtype=CARRIED[element])
    check(
        {"x": x},
        lambda a: {
            other: gen.CastOp(tensor_type(x.shape, other), a).result
            for other in VALUES
            if other != element
        },
    )


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2", "f4E2M1FN", "si4", "ui4", "si2", "ui2"])
def test_casts_to_types_of_eight_bits_and_less(element):
    x = torch.tensor(VALUES["f32"] + (0.25, 0.75, 1.25, 1.75, 3.5, 5.0, 449.0, 61000.0))

    def body(a):
        short = gen.CastOp(tensor_type(x.shape, element), a).result
        return {"back": gen.CastOp(tensor_type(x.shape, "f32"), short).result}

    check({"x": x}, body)


X = torch.arange(24.0).reshape(4, 6)  # an input that these programs do not use


def constant_program(x):
    return {"x": X}, lambda a: {"y": x()}


@pytest.mark.parametrize(
    ("bits", "counts", "vector", "shape", "axis", "element"),
    [
        *((bits, (1, 1), 1, (4, 6), 0, "f32") for bits in (1, 2, 3, 4, 6, 8)),
        (4, (2, 3), 1, (4, 6), 0, "f32"),
        (2, (1, 1), 3, (4, 6), 0, "f32"),
        (2, (2, 1), 2, (4, 6), 1, "f16"),
        (3, (1, 2, 1), 2, (3, 4, 5), 1, "bf16"),
    ],
)
def test_lookup_tables(bits, counts, vector, shape, axis, element):
    generator = np.random.default_rng(bits)
    codes = generator.integers(0, 2**bits, shape)
    table = torch.from_numpy(generator.normal(size=(*counts, 2**bits, vector)))
    check(
        *constant_program(
            lambda: (
                gen.LutToDenseOp(
                    packed(codes, bits, f"ui{bits}"),
                    constant(table.to(CARRIED[element]), element),
                    constant(axis, "si16"),
                ).result
            )
        )
    )


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["si2", "ui2", "si4", "ui4", "si8", "ui8"])
def test_blockwise_scales_and_offsets(kind, element):
    bits = int(kind[2:])
    generator = np.random.default_rng(bits)
    codes, zeros = generator.integers(0, 2**bits, (4, 6)), generator.integers(0, bits, (2, 3))
    scale, shift = (
        constant_of(generator.random((2, 3)) + 0.5, element),
        constant_of(generator.random((2, 3)), element),
    )
    check(
        *constant_program(
            lambda: (
                gen.BlockwiseShiftScaleOp(
                    packed(codes, bits, kind), scale(), packed(zeros, bits, kind), shift()
                ).result
            )
        )
    )


def constant_of(values, element):
    tensor = torch.as_tensor(values).to(CARRIED[element])
    return lambda: constant(tensor, element)


def test_float4_blocks_with_shared_exponents():
    codes = np.arange(16).reshape(2, 8)
    check(
        *constant_program(
            lambda: (
                gen.BlockwiseShiftScaleOp(
                    packed(codes, 4, "f4E2M1FN"),
                    packed([[127, 130], [120, 128]], 8, "f8E8M0FNU"),
                    constant(0.0, "f4E2M1FN", (2, 2)),
                    constant(0.0, "f32", (2, 2)),
                ).result
            )
        )
    )


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["si8", "ui8"])
def test_quantize_and_dequantize(kind, element):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).to(CARRIED[element]) * 20
    by, before = (constant_of(v, element) for v in ([0.3, 0.5, 0.2, 0.7], [0.1, 0.0, 0.2, 0.0]))
    scalar, zero_ = constant_of(0.31, element), constant_of(0.0, element)

    def body(a):
        zero, one = constant([3, 1, 2, 0], kind), constant(5, kind)
        rows = gen.QuantizeOp(a, by(), zero, before(), i32(0)).result
        all_ = gen.QuantizeOp(a, scalar(), one, zero_(), i32([0, 1])).result
        return {
            "rows": rows,
            "all": all_,
            "rows_back": gen.DequantizeOp(rows, by(), zero, before(), i32(0)).result,
            "all_back": gen.DequantizeOp(all_, scalar(), one, zero_(), i32([0, 1])).result,
        }

    check({"x": x}, body)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
def test_quantization_statistics(element):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(2)).to(CARRIED[element]) * 20

    def body(a):
        scale, zero = gen.AsymmetricQuantStatsOp(a, constant([-128, 127], "si16"), i32(1)).results
        other, shift = gen.AsymmetricQuantStatsOp(
            a, constant([0.0, 255.0], element), i32(0)
        ).results
        even = gen.SymmetricQuantStatsOp(a, constant([-128.0, 127.0], element), i32(0)).result
        return {"scale": scale, "zero": zero, "other": other, "shift": shift, "even": even}

    check({"x": x}, body)


def test_sparse_tensors_with_bit_masks():
    generator = np.random.default_rng(0)
    mask = generator.integers(0, 2, (4, 6))
    values = torch.from_numpy(generator.normal(size=int(mask.sum()))).float()
    codes = generator.integers(0, 16, int(mask.sum()))
    table = torch.from_numpy(generator.normal(size=(1, 1, 16, 1))).float()

    def body(a):
        bits = packed(mask, 1, "ui1")
        plain = gen.BuildSparseWithBitmaskOp(constant(values, "f32"), bits).result
        coded = gen.BuildSparseWithBitmaskOp(packed(codes, 4, "ui4"), bits).result
        looked = gen.LutToSparseWithBitmaskOp(
            coded, constant(table, "f32"), constant(0, "si16")
        ).result
        return {
            "plain": gen.SparseWithBitmaskToDenseOp(plain).result,
            "looked": gen.SparseWithBitmaskToDenseOp(looked).result,
        }

    check({"x": X}, body)


def test_complex_arithmetic():
    x = torch.randn(2, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(3))
    names = ("cos", "cosh", "exp", "log", "sigmoid", "silu", "sin", "sinh", "tan")
    pairs = {n: BINARY[n] for n in ("add", "sub", "mul", "divide", "equal", "not_equal")}

    def body(a, b):
        real, imaginary = gen.RealPartOp(a).result, gen.ImaginaryPartOp(b).result
        return {
            **{n: UNARY[n](a).result for n in names},
            **{n: op(a, b).result for n, op in pairs.items()},
            "pow": gen.PowOp(a, b).result,
            "matmul": gen.BatchMatmulOp(a, gen.TransposeOp(b, u32(1, 0)).result).result,
            "mixed": gen.CreateComplexOp(real, imaginary).result,
        }

    check({"x": x, "y": x.flip(0)}, body)


def test_an_isolated_group_runs():
    def body(a):
        group = gen.IsolatedGroupOp([a.type], [a], "Interpreter")
        block = group.regions[0].blocks.append(a.type)
        with InsertionPoint(block):
            ops.yield_([gen.ReLUOp(block.arguments[0]).result])
        return {"y": group.results[0]}

    check({"x": X - 9}, body)
