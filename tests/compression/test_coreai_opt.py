"""Models compressed by `coreai-opt` convert and give the numbers of the compressed model."""

import pytest
import torch
from conversion import MEASURED, assert_packed, checked, converted, ran
from torch import nn

pytest.importorskip("coreai_opt", reason="coreai-opt is not installed")

pytestmark = [
    pytest.mark.slow,
    # torchao warns about libraries that it cannot load, and coreai-opt about its own defaults.
    pytest.mark.filterwarnings("ignore"),
]


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 64)
    ).eval()


def image():
    return torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))


PALETTES = {
    "4 bits": {},
    "1 bit": {"n_bits": 1},
    "3 bits": {"n_bits": 3},
    "6 bits, grouped": {"n_bits": 6, "group": 16},
    "vectors of 2": {"n_bits": 4, "cluster_dim": 2},
    "vectors of 4, grouped": {"n_bits": 3, "cluster_dim": 4, "group": 16},
    "scaled per channel": {"enable_per_channel_scale": True},
    "table in int8": {"lut": torch.int8},
    "table in uint8, scaled per channel": {"lut": torch.uint8, "enable_per_channel_scale": True},
    "table in float8": {"lut": torch.float8_e4m3fn},
}


def palettized(n_bits=4, group=None, lut=None, **more):
    from coreai_opt.palettization import KMeansPalettizer, KMeansPalettizerConfig
    from coreai_opt.palettization.config import ModuleKMeansPalettizerConfig
    from coreai_opt.palettization.spec import PalettizationSpec, PerGroupedChannelGranularity
    from coreai_opt.quantization.spec import QuantizationSpec
    from coreai_opt.quantization.spec.granularity import PerTensorGranularity

    if group:
        more["granularity"] = PerGroupedChannelGranularity(axis=0, group_size=group)
    if lut:
        more["lut_qspec"] = QuantizationSpec(dtype=lut, granularity=PerTensorGranularity())
    spec = PalettizationSpec(n_bits=n_bits, **more)
    config = KMeansPalettizerConfig(
        global_config=ModuleKMeansPalettizerConfig(
            op_state_spec={"weight": spec}, enable_fast_kmeans_mode="cluster_dim" not in more
        )
    )
    palettizer = KMeansPalettizer(model(), config)
    palettizer.prepare((image(),))
    return palettizer.finalize()


@pytest.mark.parametrize("name", PALETTES)
def test_palettized(name):
    program = checked(palettized(**PALETTES[name]), image())
    bits = PALETTES[name].get("n_bits", 4) / PALETTES[name].get("cluster_dim", 1)
    indices = (64 * 32 * 64 + 32 * 36) * bits / 8
    assert_packed(program, indices, 13_000)  # bias and tables take 8_500


WEIGHTS = {
    "int8": ({"dtype": torch.int8}, 8),
    "int8, per block": ({"dtype": torch.int8, "block": 32}, 8),
    "uint8, asymmetric": ({"dtype": torch.uint8, "qscheme": "asymmetric"}, 8),
    "int4": ({"dtype": torch.int4}, 4),
    "int4, per block, asymmetric": ({"dtype": torch.int4, "qscheme": "asymmetric", "block": 32}, 4),
    "int4, from the least": (
        {"dtype": torch.int4, "qscheme": "asymmetric", "qformulation": "minval"},
        4,
    ),
    "uint4, asymmetric": ({"dtype": torch.uint4, "qscheme": "asymmetric"}, 4),
    "int2": ({"dtype": torch.int2}, 2),
    "float8": ({"dtype": torch.float8_e4m3fn}, 8),
    "float8 of more range": ({"dtype": torch.float8_e5m2}, 8),
    "float4": ({"dtype": torch.float4_e2m1fn_x2, "block": 32}, 4),
}


def quantized(mode, weight=None, activation=None, **finalize):
    from coreai_opt.quantization import Quantizer, QuantizerConfig
    from coreai_opt.quantization.config import ModuleQuantizerConfig
    from coreai_opt.quantization.spec import QuantizationSpec
    from coreai_opt.quantization.spec.granularity import PerBlockGranularity

    weight = dict(weight or {"dtype": torch.int8})
    if block := weight.pop("block", None):
        weight["granularity"] = PerBlockGranularity(axis=1, block_size=block)
    specs = {"weight": QuantizationSpec(**weight)}
    around = {"*": QuantizationSpec(**activation)} if activation else None
    config = QuantizerConfig(
        global_config=ModuleQuantizerConfig(
            op_state_spec=specs, op_input_spec=around, op_output_spec=around
        ),
        execution_mode=mode,
    )
    linear = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    torch.manual_seed(0)
    quantizer = Quantizer(linear, config)
    x = torch.randn(4, 64)
    prepared = quantizer.prepare((x,))
    with quantizer.calibration_mode():
        prepared(x)
    return quantizer.finalize(**finalize), x


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_quantized(name, mode):
    spec, bits = WEIGHTS[name]
    program = checked(*quantized(mode, spec))
    weights = 2 * 64 * 128 * bits / 8
    more = 7_500 if "block" in spec else 5_000  # bias, scales and the program itself
    assert_packed(program, weights, more)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("name", ["int4", "float4"])
def test_weights_in_external_files(name, mode, tmp_path):
    model, x = quantized(mode, WEIGHTS[name][0], mmap_dir=tmp_path / "weights")
    assert len(list((tmp_path / "weights").iterdir())) == 2
    assert_packed(checked(model, x), 2 * 64 * 128 / 2, 7_500)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    "spec",
    [
        {"dtype": torch.int8},
        {"dtype": torch.uint8, "qscheme": "asymmetric"},
        {"dtype": torch.int4, "qscheme": "asymmetric"},
        {"dtype": torch.int8, "qscheme": "asymmetric", "qformulation": "minval"},
        {"dtype": torch.float8_e4m3fn},
    ],
    ids=str,
)
def test_quantized_activations(spec, mode):
    program = checked(*quantized(mode, None, spec))
    assert str(program).count("= coreai.quantize ") >= 3
    assert_packed(program, 2 * 64 * 128, 8_000)


@pytest.mark.parametrize("sparsity", [0.5, 0.75])
def test_pruned(sparsity):
    from coreai_opt.pruning import (
        MagnitudePruner,
        MagnitudePrunerConfig,
        ModuleMagnitudePrunerConfig,
        PruningSpec,
    )

    spec = PruningSpec(target_sparsity=sparsity)
    config = MagnitudePrunerConfig(
        global_config=ModuleMagnitudePrunerConfig(op_state_spec={"weight": spec})
    )
    pruner = MagnitudePruner(model(), config)
    pruner.prepare((image(),))
    program = checked(pruner.finalize(), image())
    weights = (64 * 32 * 64 + 32 * 36) * (4 * (1 - sparsity) + 1 / 8)
    assert_packed(program, weights, 4_000, less=8)


def halved(program):
    from coreai_opt.coreai_utils import sparsify_weights

    return sparsify_weights(program, target_sparsity=0.5, palettize_nbits=4)


def in_int4(program):
    from coreai_opt.coreai_utils import DType, quantize_weights

    return quantize_weights(program, dtype=DType.INT4)


def in_tables(program):
    from coreai_opt.coreai_utils import palettize_weights

    return palettize_weights(program, None, n_bits=3, num_kmeans_workers=1)


@pytest.mark.parametrize(
    ("compress", "bits", "error"), [(halved, 3, 0.5), (in_int4, 4, 0.1), (in_tables, 3, 0.2)]
)
def test_compression_of_a_converted_program(compress, bits, error):
    torch.manual_seed(0)
    linear, x = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), torch.randn(4, 64)
    program = compress(converted(linear, x))
    weights = 2 * 64 * 128 * bits / 8
    assert_packed(program, weights, 4_500, less=8)
    # The loss depends on the number of bits; a misread constant would lose everything.
    MEASURED["loss"] = float((ran(program, x) - linear(x)).abs().max())
    assert MEASURED["loss"] < error


def test_both_read_the_same_yaml_file(tmp_path):
    from coreai_opt.quantization import QuantizerConfig

    from coreai_torch import compress

    path = tmp_path / "recipe.yaml"
    block = "granularity: {type: per_block, block_size: 32, axis: 1}"
    path.write_text(
        "quantization_config:\n"
        "  global_config:\n"
        "    op_input_spec: null\n"
        "    op_output_spec: null\n"
        f"    op_state_spec: {{weight: {{dtype: int4, qscheme: symmetric, {block}}}}}\n"
        '  module_name_configs: {"0": null}\n'
    )
    config = QuantizerConfig.from_yaml(str(path))
    assert config.global_config.op_state_spec["weight"].dtype == torch.int4
    assert config.module_name_configs["0"].op_state_spec == {"*": None}
    report = compress(model(), path)
    assert [row.scheme for row in report.rows] == [None, "int4"]
    assert report.rows[1].bits == 4 + 32 / 32
