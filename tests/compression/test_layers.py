"""Compressed layers and tensor subclasses: values, export, decomposition, argument checks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import coreai_torch
from coreai_torch._compression import _types
from coreai_torch._compression._floatx import Float4Tensor, SubbyteTensor
from coreai_torch._compression._intx import IntxTensor, UintxTensor
from coreai_torch._compression.custom_layers import (
    ActivationDequantizeModule,
    ActivationQuantizeModule,
    PalettizeModule,
    ScaledPalettizeModule,
    SparseModule,
    WeightDequantizeModule,
)
from coreai_torch._compression.utils import wrap_for_parametrization

U8, I8 = torch.uint8, torch.int8


def palettized():
    return PalettizeModule(torch.randint(0, 16, (8, 16), dtype=U8), torch.randn(2, 1, 16, 1))


def vectors():
    return PalettizeModule(
        indices=torch.randint(0, 4, (4, 16), dtype=U8), lut=torch.randn(1, 1, 4, 2), vector_axis=0
    )


def scaled():
    return ScaledPalettizeModule(
        indices=torch.randint(0, 16, (8, 16), dtype=U8),
        lut=torch.randint(-100, 100, (1, 1, 16, 1), dtype=I8),
        scale=torch.rand(8, 1),
        zero_point=torch.randint(-3, 3, (8, 1), dtype=I8),
    )


def quantized():
    return WeightDequantizeModule(
        quantized_data=torch.randint(-8, 8, (8, 16), dtype=I8),
        scale=torch.rand(8, 4),
        minval=torch.rand(8, 4),
        input_dtype=torch.int4,
    )


def float4():
    return WeightDequantizeModule(
        Float4Tensor(torch.randint(0, 256, (8, 8), dtype=U8)),
        torch.full((8, 1), 0.25).to(torch.float8_e8m0fnu),
        output_dtype=torch.float32,
    )


def sparse():
    mask = torch.rand(8, 16) > 0.5
    return SparseModule(torch.randn(int(mask.sum())), mask)


def sparse_and_palettized():
    mask = torch.rand(8, 16) > 0.5
    count = int(mask.sum())
    outer = SparseModule(torch.zeros(count), mask)
    inner = PalettizeModule(torch.randint(0, 4, (count,), dtype=U8), torch.randn(1, 4, 1))
    return compressed(outer, inner, "nonzero_data")


def compressed(module, layer, name="weight"):
    """Replace a weight by a layer, in the way of `coreai-opt`."""
    layer.__class__ = wrap_for_parametrization(type(layer))
    parametrize.register_parametrization(module, name, layer, unsafe=True)
    return module


WEIGHTS = [palettized, vectors, scaled, quantized, float4, sparse, sparse_and_palettized]


@pytest.mark.parametrize("make", WEIGHTS, ids=lambda f: f.__name__)
def test_weight_survives_export_and_decomposition(make):
    torch.manual_seed(0)
    layer = make()
    weight = layer()
    model = nn.Linear(16, 8)
    if not parametrize.is_parametrized(layer):
        model = compressed(model, layer)
        torch.testing.assert_close(model.weight, weight, rtol=0, atol=0)
    else:
        model = Product(layer)
    x = torch.randn(3, 16)
    program = torch.export.export(model, (x,)).run_decompositions(coreai_torch.get_decomp_table())
    kept = [n.target for n in program.graph.nodes if "coreai" in str(n.target)]
    assert kept
    assert all(isinstance(target, torch._ops.OpOverload) for target in kept)
    torch.testing.assert_close(program.module()(x), model(x), rtol=0, atol=0)


def test_export_of_a_single_layer():
    layer = quantized()
    assert layer.zero_point is None
    torch.testing.assert_close(torch.export.export(layer, ()).module()(), layer(), rtol=0, atol=0)


class Product(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return x @ self.layer().T


def test_activation_quantize_and_dequantize():
    quantize = ActivationQuantizeModule(
        scale=torch.tensor(0.1), output_dtype=I8, zero_point=torch.tensor(3, dtype=I8)
    )
    back = ActivationDequantizeModule(
        scale=torch.tensor(0.1), zero_point=torch.tensor(3, dtype=I8), input_dtype=I8
    )
    model = nn.Sequential(quantize, back)
    x = torch.randn(2, 5)
    assert quantize(x).dtype == I8
    torch.testing.assert_close(model(x), x, rtol=0, atol=0.0501)
    program = torch.export.export(model, (x,)).run_decompositions(coreai_torch.get_decomp_table())
    names = [n.target.name() for n in program.graph.nodes if n.op == "call_function"]
    assert names == ["coreai::quantize", "coreai::dequantize"]


def test_wrapped_layer_keeps_class_and_state_names():
    assert wrap_for_parametrization(SparseModule) is wrap_for_parametrization(SparseModule)
    assert issubclass(wrap_for_parametrization(SparseModule), SparseModule)
    model = copy.deepcopy(compressed(nn.Linear(16, 8), quantized()))
    assert isinstance(model.parametrizations.weight[0], WeightDequantizeModule)
    assert set(model.state_dict()) == {
        "bias",
        "parametrizations.weight.original",
        *(f"parametrizations.weight.0.{name}" for name in ("quantized_data", "scale", "minval")),
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: PalettizeModule(torch.tensor([[9]], dtype=U8), torch.zeros(1, 1, 8, 1)),
            "indices contains 9",
        ),
        (
            lambda: WeightDequantizeModule(torch.zeros(4, 6, dtype=I8), torch.ones(4, 4)),
            "scale .* does not divide",
        ),
        (
            lambda: WeightDequantizeModule(
                torch.tensor([[9]], dtype=I8), torch.ones(1, 1), input_dtype=torch.int4
            ),
            "quantized_data contains 9, outside of int4",
        ),
        (
            lambda: ActivationQuantizeModule(torch.ones(()), torch.int4, torch.tensor(9, dtype=I8)),
            "zero_point contains 9",
        ),
        (lambda: SparseModule(torch.ones(2), torch.tensor([[True]])), "mask marks 1 elements"),
    ],
)
def test_layer_with_inconsistent_tensors_raises(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("kind", [UintxTensor, IntxTensor])
def test_packed_integers_act_like_their_values(kind, bits):
    low = -(2 ** (bits - 1)) if kind is IntxTensor else 0
    values = torch.randint(low, low + 2**bits, (3, 7))
    packed = kind.from_values(values, bits)
    assert isinstance(packed, SubbyteTensor)
    assert packed.elem.numel() == -(-21 * bits // 8)
    assert packed.shape == values.shape
    assert (packed + 0).tolist() == values.tolist()
    again = copy.deepcopy(packed).detach().clone()
    assert type(again) is kind
    assert again.unpack().tolist() == values.tolist()


def test_compression_ops_accept_packed_integers():
    values = torch.randint(0, 8, (4, 6))
    lut = torch.randn(1, 1, 8, 1)
    packed = UintxTensor.from_values(values, 3)
    plain = torch.ops.coreai.lut_to_dense(values.to(U8), lut, 0)
    assert torch.equal(torch.ops.coreai.lut_to_dense(packed, lut, 0), plain)
    assert torch.equal(PalettizeModule(packed, lut)(), plain)


def test_float4_has_the_shape_of_its_values_and_the_dtype_of_its_bytes():
    bytes_ = torch.tensor([[0x21, 0x9F]], dtype=U8)
    packed = Float4Tensor(bytes_)
    assert (packed.shape, packed.dtype) == (packed.unpack().shape, U8) == ((1, 4), U8)
    assert packed.numel() == 4
    assert packed.clone().shape == (1, 4)
    assert packed.unpack().tolist() == [[0.5, 1.0, -6.0, -0.5]]
    assert packed.elem is bytes_
    module = nn.Module()
    module.register_buffer("w", packed)
    module.half()
    module.load_state_dict(module.state_dict(), assign=True)
    assert type(module.w) is Float4Tensor
    assert module.w.elem.tolist() == bytes_.tolist()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Float4Tensor(torch.zeros(2)), TypeError, "packed bytes"),
        (lambda: Float4Tensor(torch.tensor(1, dtype=U8)), ValueError, "not a scalar"),
        (lambda: UintxTensor(torch.zeros(2, dtype=U8), 5), ValueError, "5 bits"),
        (lambda: UintxTensor(torch.zeros(2, dtype=U8), 4, (3, 3)), ValueError, "takes 5 bytes"),
    ],
)
def test_packed_tensor_of_wrong_bytes_raises(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_element_types_by_name():
    four = _types.string_to_builtin("int4")
    assert four is _types.int4
    assert (four.get_bitwidth(), four.is_unsigned()) == (4, False)
    assert _types.builtin_to_string(_types.uint6) == "uint6"
    assert _types.nptype_from_builtin(four) is np.int8
    assert _types.nptype_from_builtin(_types.uint2) is np.uint8
    assert _types.is_int(four)
    assert not _types.is_int(_types.fp16)
    with pytest.raises(ValueError, match="unknown element type 'int5'"):
        _types.string_to_builtin("int5")
