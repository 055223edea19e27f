"""Conversion of compressed models: all layer types, weights stay compressed, errors."""

import re

import pytest
import torch
from conversion import checked, compressed, converted, ran, saved_bytes
from torch import nn

import coreai_torch
from coreai_torch._compression._intx import IntxTensor, UintxTensor
from coreai_torch._compression.custom_layers import (
    ActivationDequantizeModule,
    ActivationQuantizeModule,
    PalettizeModule,
    SparseModule,
    WeightDequantizeModule,
)
from coreai_torch.errors import UnsupportedArgumentError

ops = torch.ops.coreai
I8, U8 = torch.int8, torch.uint8


def integers(low, high, *shape, dtype=I8):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def int4(shape, dtype):
    scale = torch.full((shape[0], shape[1] // 4, *shape[2:]), 1 / 64, dtype=dtype)
    zero = integers(-8, 8, *scale.shape)
    return WeightDequantizeModule(integers(-8, 8, *shape), scale, zero, input_dtype=torch.int4)


def table(shape, dtype):
    lut = (torch.arange(-32, 32) / 64).reshape(2, *[1] * (len(shape) - 1), 32, 1).to(dtype)
    return PalettizeModule(integers(0, 32, *shape, dtype=U8), lut)


def sparse(shape, dtype):
    mask = integers(0, 2, *shape, dtype=torch.bool)
    return SparseModule(integers(-32, 32, int(mask.sum())).to(dtype) / 64, mask)


LAYERS = {
    "linear": (lambda: nn.Linear(32, 16), (3, 32)),
    "linear without bias": (lambda: nn.Linear(32, 16, bias=False), (2, 3, 32)),
    "conv2d": (lambda: nn.Conv2d(8, 16, 3, padding=1), (1, 8, 5, 5)),
    "conv1d": (lambda: nn.Conv1d(8, 16, 3), (1, 8, 9)),
    "embedding": (lambda: nn.Embedding(32, 16), (2, 5)),
}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


ROWS = [(name, scheme, torch.float32) for name in LAYERS for scheme in (int4, table, sparse)] + [
    (name, scheme, dtype)
    for name in ("linear", "conv2d", "embedding")
    for scheme in (int4, table)
    for dtype in (torch.float16, torch.bfloat16)
]


@pytest.mark.parametrize(
    ("name", "scheme", "dtype"), ROWS, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_layer(name, scheme, dtype):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().to(dtype)
    weight = tuple(layer.weight.shape)
    layer = compressed(layer, scheme(weight, dtype))
    # Integers, because the runtime sums f16 products in f16; the weights are multiples of 1/64.
    x = integers(0, 3, *shape) if dtype != torch.float32 else torch.randn(shape)
    x = integers(0, 32, *shape).long() if name == "embedding" else x.to(dtype)
    checked(layer, x)


def test_batch_norm_after_a_compressed_convolution():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).eval()
    compressed(model[0], int4((16, 8, 3, 3), torch.float32))
    checked(model, torch.randn(1, 8, 5, 5))


def test_dynamic_sizes():
    linear = compressed(nn.Linear(32, 16), int4((16, 32), torch.float32))
    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    program = checked(linear, torch.randn(3, 32), dynamic_shapes=(rows,))
    x = torch.randn(7, 32)
    torch.testing.assert_close(ran(program, x), linear(x).detach(), rtol=1e-5, atol=1e-5)


class Tied(nn.Module):
    """One packed weight that is used as embedding and as linear weight."""

    def __init__(self):
        super().__init__()
        self.embedding = compressed(nn.Embedding(256, 64), int4((256, 64), torch.float32))

    def forward(self, ids):
        return self.embedding(ids) @ self.embedding.weight.T


def test_weight_used_twice_is_stored_once():
    program = checked(Tied(), torch.tensor([[3, 255, 0]]))
    packed = 256 * 64 // 2
    scales = 256 * 16 * 4
    zeros = 256 * 16 // 2
    assert packed + scales + zeros < saved_bytes(program) < packed + scales + zeros + 4_000


class Moved(nn.Module):
    """A weight that is cast, transposed, sliced and reshaped after decompression."""

    def __init__(self):
        super().__init__()
        self.weight = int4((64, 256), torch.float16)

    def forward(self, x):
        weight = self.weight().to(torch.float32).permute(1, 0).reshape(4, 64, 64)
        return x @ torch.cat([weight[1], weight[3]], dim=1).contiguous()


def test_ops_after_decompression_keep_the_weight_compressed():
    program = checked(Moved(), torch.randn(2, 64))
    compressed_bytes = 64 * 256 // 2 + 64 * 64 * 2 + 64 * 64 // 2
    assert compressed_bytes < saved_bytes(program) < compressed_bytes + 4_000


class Turned(nn.Module):
    """Data that is transposed and reshaped before it is scaled; too large to be folded."""

    def __init__(self):
        super().__init__()
        self.register_buffer("data", integers(-8, 8, 1024, 1100))
        self.register_buffer("scale", torch.rand(1100, 1))

    def forward(self, x):
        data = self.data.reshape(1024, 1, 1100).permute(2, 1, 0).squeeze(1)
        weight = ops.constexpr_blockwise_shift_scale(data, self.scale, input_dtype=torch.int4)
        return x * weight


def test_data_transposed_before_scaling_is_packed():
    program = checked(Turned(), torch.randn(1024))
    packed = 1024 * 1100 // 2 + 1100 * 4
    assert packed < saved_bytes(program) < packed + 4_000


class Both(nn.Module):
    """Weights that are already packed in torch, with 3 and with 6 bits."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", UintxTensor.from_values(integers(0, 8, 64, 64), 3))
        self.register_buffer("b", IntxTensor.from_values(integers(-32, 32, 64, 64), 6))
        self.register_buffer("lut", torch.randn(1, 1, 8, 1))
        self.register_buffer("scale", torch.rand(64, 1))

    def forward(self, x):
        b = ops.constexpr_blockwise_shift_scale(self.b, self.scale, input_dtype=torch.int6)
        return x * ops.lut_to_dense(self.a, self.lut, 0) + b


@pytest.mark.parametrize("decomposed", [False, True])
def test_packed_integers_stay_packed(decomposed):
    model, x = Both(), torch.randn(64, 64)
    exported = torch.export.export(model, (x,))
    if decomposed:
        exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    torch.testing.assert_close(ran(program, x), model(x), rtol=1e-5, atol=1e-5)
    bytes_ = 64 * 64 * 3 // 8 + 64 * 64 * 6 // 8 + 8 * 4 + 64 * 4
    assert bytes_ < saved_bytes(program) < bytes_ + 3_000


EIGHT_BITS = [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2]
QUANTIZED = [(dtype, torch.float32) for dtype in [torch.int4, *EIGHT_BITS]] + [
    (torch.int8, torch.float16),
    (torch.int8, torch.bfloat16),
    (torch.float8_e4m3fn, torch.float16),
]


@pytest.mark.parametrize(("dtype", "wide"), QUANTIZED, ids=str)
def test_quantized_activations_equal_torch(dtype, wide):
    torch.manual_seed(0)
    scale = torch.tensor(0.37, dtype=wide)
    edges = [float("inf"), float("-inf"), 1e4, -1e4, 0.185, 0.555, -0.185, 0.0, 60000.0, 465.0]
    x = torch.cat([torch.randn(3000) * 20, torch.tensor(edges)]).to(wide)
    input_dtype = None if dtype.is_floating_point else dtype
    model = nn.Sequential(
        ActivationQuantizeModule(scale, dtype),
        ActivationDequantizeModule(scale, input_dtype=input_dtype),
    )
    assert torch.equal(ran(converted(model, x), x), model(x))


class Call(nn.Module):
    """A call of an op with constants, some of them wrong, that eager torch never runs."""

    def __init__(self, op, *given, **more):
        super().__init__()
        self.op, self.more = op, more
        self.given = [self._placed(i, g) for i, g in enumerate(given)]

    def _placed(self, i, given):
        if isinstance(given, torch.Tensor):
            self.register_buffer(f"given_{i}", given)
            return lambda: getattr(self, f"given_{i}")
        return lambda: given

    def forward(self, x):
        return x + self.op(*(g() for g in self.given), **self.more)


def zeros(*shape, dtype=U8):
    return torch.zeros(shape, dtype=dtype)


WRONG = {
    "index past the table": (
        Call(ops.lut_to_dense, zeros(2, 2) + 4, torch.zeros(1, 1, 4, 1), 0),
        "indices 'given_0' contains 4, but the table has 4 entries",
    ),
    "table too long": (
        Call(ops.lut_to_dense, zeros(2, 2), torch.zeros(1, 1, 512, 1), 0),
        "lut 'given_1' has 512 entries; at most 256 are supported",
    ),
    "value too wide": (
        Call(
            ops.constexpr_blockwise_shift_scale,
            zeros(2, 2, dtype=I8) + 8,
            torch.ones(1, 1),
            None,
            None,
            torch.int4,
        ),
        r"input 'given_0' contains 8, outside of int4 \(-8 to 7\)",
    ),
    "zero point too wide": (
        Call(
            ops.constexpr_blockwise_shift_scale,
            zeros(2, 2, dtype=I8),
            torch.ones(1, 1),
            zeros(1, 1, dtype=I8) - 9,
            None,
            torch.int4,
        ),
        "zero_point 'given_2' contains -9, outside of int4",
    ),
    "mask with another count": (
        Call(ops.sparse_to_dense, torch.ones(1), torch.tensor([[True, True]])),
        "mask 'given_1' marks 2 places for 1 nonzero_data 'given_0'",
    ),
    "weight of rank 0": (
        Call(ops.constexpr_blockwise_shift_scale, torch.tensor(1, dtype=I8), torch.tensor(1.0)),
        "input 'given_0' of rank 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_error_names_the_path_of_the_tensor(name):
    model, message = WRONG[name]
    with pytest.raises(UnsupportedArgumentError, match=message):
        converted(model, torch.ones(2, 2))


class Computed(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


AT_RUN_TIME = {
    "indices": lambda x: ops.lut_to_dense(x, torch.zeros(1, 1, 4, 1), 0),
    "mask": lambda x: ops.sparse_to_dense(torch.ones(4), x),
    "4-bit floats": lambda x: ops.constexpr_blockwise_shift_scale(
        x, torch.ones(1, 1).to(torch.float8_e8m0fnu)
    ),
    "packed integers": lambda x: ops.unpack_bits(x.reshape(-1), 8, [2, 2], False),
}


@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_operand_computed_at_run_time_raises(name):
    with pytest.raises(UnsupportedArgumentError, match=f"{name}.* computed at run time"):
        converted(Computed(AT_RUN_TIME[name]), torch.ones(2, 2, dtype=U8))


def test_error_names_the_weight_and_gives_a_hint():
    linear = compressed(nn.Linear(2, 2), PalettizeModule(zeros(2, 2), torch.zeros(1, 1, 4, 1)))
    linear.parametrizations.weight[0].indices += 9  # like a broken checkpoint
    with pytest.raises(UnsupportedArgumentError) as raised:
        converted(nn.Sequential(linear), torch.ones(1, 2))
    message = str(raised.value)
    assert "indices '0.parametrizations.weight.0.indices' contains 9" in message
    assert re.search(r"\n  try   pass valid indices", message)
