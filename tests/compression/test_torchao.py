"""Models quantized by torchao, PT2E and torch.ao convert and keep their weights compressed."""

import copy

import pytest
import runtime
import torch
from conversion import checked, close, converted, ran, saved_bytes
from lazy_import import installed
from torch import nn

import coreai_torch

# torchao warns about libraries that it cannot load, and torch.ao that torchao replaces it.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not installed("torchao"), reason="torchao is not installed"),
]


def always(rows, *few):
    """Return the names of the rows; all but a few are marked slow."""
    return [
        name if name in few else pytest.param(name, marks=pytest.mark.slow, id=name)
        for name in rows
    ]


SIZES = (256, 512)
WEIGHTS = 2 * 256 * 512


def linears(dtype=torch.float32):
    torch.manual_seed(0)
    few, many = SIZES
    model = nn.Sequential(nn.Linear(few, many), nn.ReLU(), nn.Linear(many, few))
    return model.eval().to(dtype)


def x(dtype=torch.float32):
    return torch.randn(4, 256, generator=torch.Generator().manual_seed(1)).to(dtype)


def quantized(config, dtype=torch.float32):
    from torchao.quantization import quantize_

    model = linears(dtype)
    quantize_(model, config)
    return model


def weight_only(bits, **more):
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    more.setdefault("granularity", PerGroup(32))
    return IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), **more)


def int8_weights():
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig()


def int8_rows():
    from torchao.quantization import PerAxis

    return weight_only(8, granularity=PerAxis(0))


def int4_asymmetric():
    from torchao.quantization.quant_primitives import MappingType

    return weight_only(4, mapping_type=MappingType.ASYMMETRIC)


def int8_both(**more):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return Int8DynamicActivationInt8WeightConfig(**more)


def int8_both_asymmetric():
    from torchao.quantization.quant_primitives import MappingType

    return int8_both(act_mapping_type=MappingType.ASYMMETRIC)


def int8_both_fixed():
    from torchao.quantization import Int8StaticActivationInt8WeightConfig, PerTensor

    scale = torch.tensor([[0.05]])
    return Int8StaticActivationInt8WeightConfig(act_quant_scale=scale, granularity=PerTensor())


def int4_under_int8():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup

    return Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    )


def float8_weights():
    from torchao.quantization import Float8WeightOnlyConfig

    return Float8WeightOnlyConfig()


def int4_for_processors():
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

    return PrototypeInt4WeightOnlyConfig(group_size=32)


# A configuration, the bits of a weight, and the number of weights that share a scale.
CONFIGS = {
    "int8": (int8_weights, 8, 256),
    "int8 by rows": (int8_rows, 8, 256),
    "int4 in groups": (lambda: weight_only(4), 4, 32),
    "int4 in groups, asymmetric": (int4_asymmetric, 4, 32),
    "int3 in groups": (lambda: weight_only(3), 3, 32),
    "int2 in groups": (lambda: weight_only(2), 2, 32),
    "int4 packed for a processor": (int4_for_processors, 4, 32),
    "int8 with int8 activations": (int8_both, 8, 256),
    "int8 with asymmetric int8 activations": (int8_both_asymmetric, 8, 256),
    "int8 with int8 activations of a fixed scale": (int8_both_fixed, 8, 256),
    "int4 with int8 activations": (int4_under_int8, 4, 32),
    "float8": (float8_weights, 8, 256),
}


def expected_bytes(bits, shared):
    """Return the bytes of weights, scales, zero points, biases and ops."""
    weights = WEIGHTS * bits / 8
    return weights, weights + WEIGHTS / shared * 8 + 4 * sum(SIZES) + 16_000


@pytest.mark.parametrize(
    "name", always(CONFIGS, "int8", "int4 in groups, asymmetric", "int8 with int8 activations")
)
def test_tensor_subclass_converts(name):
    config, bits, shared = CONFIGS[name]
    program = checked(quantized(config()), x())
    least, most = expected_bytes(bits, shared)
    assert least < saved_bytes(program) < most


@pytest.mark.parametrize("name", always(["int4 in groups, asymmetric", "float8", "int8"], "float8"))
def test_default_decompositions_keep_the_weights_compressed(name):
    config, bits, shared = CONFIGS[name]
    model = quantized(config())
    exported = torch.export.export(model, (x(),)).run_decompositions()
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    close(ran(program, x()), model(x()))
    least, most = expected_bytes(bits, shared)
    assert least < saved_bytes(program) < most


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8", "int4 in groups, asymmetric", "float8"])
def test_bfloat16_models(name):
    config, bits, shared = CONFIGS[name]
    program = checked(quantized(config(), torch.bfloat16), x(torch.bfloat16))
    least, most = expected_bytes(bits, shared)
    assert least < saved_bytes(program) < most


@pytest.mark.slow
def test_unwrapped_subclasses_convert_equally():
    from torchao.utils import unwrap_tensor_subclass

    model = quantized(weight_only(4))
    want = model(x())
    plain = unwrap_tensor_subclass(copy.deepcopy(model))
    program = converted(plain, x())
    close(ran(program, x()), want)
    assert saved_bytes(program) < expected_bytes(4, 32)[1]


@pytest.mark.slow
def test_convert_verifies_a_quantized_model():
    model = quantized(int4_under_int8())
    program = coreai_torch.convert(model, (x(),))
    close(ran(program, x()), model(x()))


def test_dynamic_batch():
    model = quantized(int4_under_int8())
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    program = converted(model, x(), dynamic_shapes=sizes)
    for rows in (1, 4, 7):
        some = torch.randn(rows, 256, generator=torch.Generator().manual_seed(rows))
        close(ran(program, some), model(some))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
def test_embeddings(dtype):
    from torchao.quantization import quantize_

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(512, 128)).eval().to(dtype)
    quantize_(model, weight_only(4), lambda module, name: isinstance(module, nn.Embedding))
    program = checked(model, torch.tensor([[0, 5, 511]]))
    assert 512 * 64 < saved_bytes(program) < 512 * 64 + 512 * 4 * 5 + 4_000


# Programs with quantize and dequantize nodes -----------------------------------------------------


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 64, 3, padding=1)
        self.second = nn.Conv2d(64, 64, 3, stride=4)
        self.last = nn.Linear(256, 64)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(x)).flatten(1))


PICTURE_WEIGHTS = 64 * 4 * 9 + 64 * 64 * 9 + 256 * 64


def picture(seed=1):
    return torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(seed))


def pictured():
    torch.manual_seed(0)
    return Picture().eval()


def pt2e(fold_quantize=True, **config):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(**config))
    prepared = prepare_pt2e(torch.export.export(pictured(), (picture(),)).module(), quantizer)
    prepared(picture())
    return convert_pt2e(prepared, fold_quantize=fold_quantize)


def xnnpack(**config):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e import _xnnpack_quantizer as xnn

    quantizer = xnn.XNNPACKQuantizer()
    quantizer.set_global(xnn.get_symmetric_quantization_config(**config))
    prepared = prepare_pt2e(torch.export.export(pictured(), (picture(),)).module(), quantizer)
    prepared(picture())
    return convert_pt2e(prepared)


def observed():
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx, prepare_fx

    prepared = prepare_fx(pictured(), get_default_qconfig_mapping("x86"), (picture(),))
    prepared(picture())
    return _convert_to_reference_decomposed_fx(prepared)


PROGRAMS = {
    "PT2E": pt2e,
    "PT2E, weights quantized in the graph": lambda: pt2e(fold_quantize=False),
    "PT2E, dynamic": lambda: pt2e(is_dynamic=True),
    "PT2E, 7 bits": lambda: pt2e(reduce_range=True),
    "PT2E, symmetric": lambda: xnnpack(is_per_channel=True),
    "PT2E, per tensor": lambda: xnnpack(is_per_channel=False),
    "PT2E, 4 bits": lambda: xnnpack(weight_qmin=-8, weight_qmax=7),
    "torch.ao observers": observed,
}


@pytest.mark.parametrize("name", always(PROGRAMS, "PT2E", "torch.ao observers"))
def test_quantized_programs(name):
    model = PROGRAMS[name]()
    program = checked(model, picture())
    for seed in range(2, 5):
        close(ran(program, picture(seed)), model(picture(seed)))
    weights = PICTURE_WEIGHTS // (2 if "4 bits" in name else 1)
    assert weights < saved_bytes(program) < weights + 16_000


# One op at a time --------------------------------------------------------------------------------

TIES = torch.tensor([[0.05, 0.15, 0.25, -0.35, 1e9], [0.45, -1e9, 12.65, 3.0, -7.75]])
LOW_HIGH = (-128, 127, torch.int8)
ROWS = torch.tensor([0.1, 0.7])
ZEROS = torch.tensor([3, -4])
NUMBERS = torch.arange(-128, 128, dtype=torch.int8).reshape(2, 128)

# An op, its arguments after the first one, and the first one: integers are exact.
OPS = {
    "quantize_per_tensor.default": (TIES, 0.1, 3, *LOW_HIGH),
    "quantize_per_tensor.default, half the range": (TIES, 0.1, 3, 0, 127, torch.uint8),
    "quantize_per_tensor.default, 16 bits": (TIES, 0.1, 3, -(2**15), 2**15 - 1, torch.int16),
    "quantize_per_tensor.default, from half": (TIES.half(), 0.1, 3, *LOW_HIGH),
    "quantize_per_tensor.tensor": (TIES, torch.tensor(0.1), torch.tensor(3), *LOW_HIGH),
    "quantize_per_channel.default": (TIES, ROWS, ZEROS, 0, *LOW_HIGH),
    "quantize_per_token.default": (TIES, ROWS[:, None], ZEROS[:, None], *LOW_HIGH),
    "dequantize_per_tensor.default": (NUMBERS, 0.1, 3, *LOW_HIGH),
    "dequantize_per_tensor.default, wide": (NUMBERS.int(), 0.1, 3, -(2**31), 2**31 - 1, torch.int),
    "dequantize_per_tensor.tensor": (NUMBERS, torch.tensor(0.1), torch.tensor(3), *LOW_HIGH),
    "dequantize_per_channel.default": (NUMBERS, ROWS, ZEROS, 0, *LOW_HIGH),
    "dequantize_per_channel.default, no zero": (NUMBERS, ROWS, None, 0, *LOW_HIGH),
    "dequantize_per_channel.default, wide": (NUMBERS.int(), ROWS, ZEROS, 0, -9, 9, torch.int32),
    "dequantize_per_token.default": (
        *(NUMBERS, ROWS[:, None], ZEROS[:, None], *LOW_HIGH),
        torch.float32,
    ),
    "dequantize_per_channel_group.default": (
        *(NUMBERS, torch.rand(2, 4), torch.ones(2, 4, dtype=torch.int32), *LOW_HIGH),
        *(32, torch.float32),
    ),
    "choose_qparams.tensor": (TIES[1:, 2:], 0, 255, 1e-5, torch.uint8),
    "choose_qparams.tensor, of nothing below": (TIES.abs(), 0, 255, 1e-5, torch.uint8),
    "choose_qparams_symmetric.tensor": (TIES[1:, 2:], -128, 127, 1e-5, torch.int8),
    "choose_qparams_per_token_asymmetric.default": (TIES[:, :1] + TIES[1:, 2:], torch.int8),
}


class Called(nn.Module):
    def __init__(self, op, *arguments):
        super().__init__()
        self.op, self.arguments = op, arguments

    def forward(self, x):
        return self.op(x, *self.arguments)


@pytest.mark.parametrize(
    "name",
    always(
        OPS,
        "quantize_per_tensor.default, half the range",
        "quantize_per_channel.default",
        "dequantize_per_channel.default",
        "choose_qparams.tensor",
    ),
)
def test_single_op(name):
    import torch.ao.quantization.fx._decomposed

    x, *arguments = OPS[name]
    packet, overload = name.partition(",")[0].split(".")
    model = Called(getattr(getattr(torch.ops.quantized_decomposed, packet), overload), *arguments)
    program = converted(model, x)
    about = runtime.descriptor(program)
    found = runtime.run(program, {about.input_names[0]: x})
    want = model(x)
    expected_all = want if isinstance(want, tuple) else [want]
    for output, expected in zip(about.output_names, expected_all, strict=True):
        got = found[output]
        if expected.is_floating_point():
            torch.testing.assert_close(got, expected.float(), rtol=1e-6, atol=0)
        else:
            assert torch.equal(got.int(), expected.int())


def test_large_weight_is_decompressed_by_one_op():
    from torchao.quantization import quantize_

    model = nn.Sequential(nn.Linear(1024, 1100, bias=False)).eval()  # more than a megabyte
    quantize_(model, int8_weights())
    text = str(converted(model, torch.randn(1, 1024)))
    assert text.count("= coreai.blockwise_shift_scale ") == 1
    assert "= coreai.cast " not in text
    assert "= coreai.transpose " not in text


@pytest.mark.slow
def test_conversion_does_not_import_torchao():
    import subprocess
    import sys

    ask = "import coreai_torch, sys; coreai_torch.get_decomp_table(); coreai_torch.compress"
    ask += "; sys.exit('torchao' in sys.modules)"
    subprocess.run([sys.executable, "-c", ask], check=True)


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


@pytest.mark.slow
@pytest.mark.parametrize("config", [lambda: weight_only(4), int8_weights], ids=["int4", "int8"])
def test_transformers_decoder(config):
    from torchao.quantization import quantize_

    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    settings = transformers.Qwen2Config(**sizes, **heads, tie_word_embeddings=False)
    model = Logits(transformers.Qwen2ForCausalLM(settings).eval())
    quantize_(model, config())
    program = checked(model, torch.tensor([[3, 500, 0, 17]]))
    linears = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128) + 512 * 64
    embedding = 4 * 512 * 64
    size = embedding + linears * (1 if config is int8_weights else 0.5)
    assert size < saved_bytes(program) < size + linears / 32 * 8 + 50_000
