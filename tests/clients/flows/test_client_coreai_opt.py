"""Paths of coreai-opt that end in this converter: convolutions, embeddings and composites.

`tests/compression/test_coreai_opt.py` has linear layers, palettes, pruning and activations; the
client runs both files.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "compression"))

from conversion import assert_packed, checked, close, ran

import coreai_torch
from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table
from coreai_torch.composite_ops import SDPA, RMSNorm, RMSNormImpl

quantization = pytest.importorskip("coreai_opt.quantization", reason="coreai-opt is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

WEIGHTS = {
    "int8": (torch.int8, 8),
    "int4": (torch.int4, 4),
    "uint2": (torch.uint2, 2),
    "float8_e4m3fn": (torch.float8_e4m3fn, 8),
    "float8_e5m2": (torch.float8_e5m2, 8),
}


def quantizer(model, mode, dtype, block=None):
    from coreai_opt.quantization.config import ModuleQuantizerConfig
    from coreai_opt.quantization.spec import QuantizationSpec
    from coreai_opt.quantization.spec.granularity import PerBlockGranularity

    axis = 1 if isinstance(block, int) else None
    more = {"granularity": PerBlockGranularity(axis=axis, block_size=block)} if block else {}
    if dtype == torch.uint2:
        more["qscheme"] = "asymmetric"
    module = ModuleQuantizerConfig(
        op_state_spec={"weight": QuantizationSpec(dtype=dtype, **more)},
        op_input_spec=None,
        op_output_spec=None,
    )
    config = quantization.QuantizerConfig(global_config=module, execution_mode=mode)
    return quantization.Quantizer(model, config)


def quantized(model, mode, dtype, x, block=None):
    made = quantizer(model.eval(), mode, dtype, block)
    prepared = made.prepare((x,))
    with made.calibration_mode():
        prepared(x)
    return made.finalize()


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_quantized_convolution(name, mode):
    torch.manual_seed(0)
    dtype, bits = WEIGHTS[name]
    x = torch.randn(1, 16, 6, 6)
    model = nn.Sequential(nn.Conv2d(16, 64, 3), nn.ReLU(), nn.Conv2d(64, 16, 3))
    program = checked(quantized(model, mode, dtype, x), x)
    weights = 2 * 64 * 16 * 9 * bits / 8
    assert_packed(program, weights, 9_000)  # biases, scales and the program


@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("kind", ["Conv1d", "Conv3d", "ConvTranspose2d"])
def test_other_quantized_convolution(kind, name):
    torch.manual_seed(0)
    dtype, bits = WEIGHTS[name]
    layer = getattr(nn, kind)(16, 64, 3)
    x = torch.randn(1, 16, *[6] * (layer.weight.dim() - 2))
    program = checked(quantized(nn.Sequential(layer, nn.ReLU()), "eager", dtype, x), x)
    assert_packed(program, layer.weight.numel() * bits / 8, 9_000)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_float4_blocks_of_a_convolution(mode):
    torch.manual_seed(0)
    x, block = torch.randn(1, 16, 4, 40), (1, 1, 1, 32)  # coreai-opt wants blocks in the last axis
    model = nn.Sequential(nn.Conv2d(16, 32, (2, 32)))
    made = quantized(model, mode, torch.float4_e2m1fn_x2, x, block)
    assert_packed(checked(made, x), 32 * 16 * 2 * 32 / 2, 9_000)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(256, 64), nn.Linear(64, 8)

    def forward(self, tokens):
        return self.out(self.table(tokens))


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_quantized_embedding(name, mode):
    torch.manual_seed(0)
    dtype, bits = WEIGHTS[name]
    tokens = torch.randint(0, 256, (2, 5), dtype=torch.int32)
    program = checked(quantized(Words(), mode, dtype, tokens), tokens)
    weights = (256 * 64 + 64 * 8) * bits / 8
    assert_packed(program, weights, 9_000)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_float4_blocks_of_an_embedding(mode):
    torch.manual_seed(0)
    tokens = torch.randint(0, 256, (2, 5), dtype=torch.int32)
    model = quantized(Words(), mode, torch.float4_e2m1fn_x2, tokens, block=32)
    program = checked(model, tokens)
    weights = (256 * 64 + 64 * 8) / 2
    assert_packed(program, weights, 9_000)


def test_palettized_embedding():
    from coreai_opt.palettization import KMeansPalettizer, KMeansPalettizerConfig
    from coreai_opt.palettization.config import ModuleKMeansPalettizerConfig
    from coreai_opt.palettization.spec import PalettizationSpec

    torch.manual_seed(0)
    tokens = torch.randint(0, 256, (2, 5), dtype=torch.int32)
    spec = {"weight": PalettizationSpec(n_bits=4)}
    config = KMeansPalettizerConfig(
        global_config=ModuleKMeansPalettizerConfig(op_state_spec=spec),
        module_type_configs={nn.Embedding: ModuleKMeansPalettizerConfig(module_state_spec=spec)},
    )
    palettizer = KMeansPalettizer(Words().eval(), config)
    palettizer.prepare((tokens,))
    program = checked(palettizer.finalize(), tokens)
    weights = (256 * 64 + 64 * 8) / 2
    assert_packed(program, weights, 9_000)


@pytest.mark.parametrize("sparsity", [0.5, 0.75])
def test_pruned_embedding(sparsity):
    from coreai_opt.pruning import (
        MagnitudePruner,
        MagnitudePrunerConfig,
        ModuleMagnitudePrunerConfig,
        PruningSpec,
    )

    torch.manual_seed(0)
    tokens = torch.randint(0, 256, (2, 5), dtype=torch.int32)
    spec = {"weight": PruningSpec(target_sparsity=sparsity)}
    config = MagnitudePrunerConfig(
        global_config=ModuleMagnitudePrunerConfig(op_state_spec=spec),
        module_type_configs={nn.Embedding: ModuleMagnitudePrunerConfig(module_state_spec=spec)},
    )
    pruner = MagnitudePruner(Words().eval(), config)
    pruner.prepare((tokens,))
    program = checked(pruner.finalize(), tokens)
    weights = (256 * 64 + 64 * 8) * (4 * (1 - sparsity) + 1 / 8)
    assert_packed(program, weights, 5_000, less=8)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.into = RMSNorm(64), nn.Linear(64, 192)
        self.attend, self.out = SDPA(is_causal=True), nn.Linear(64, 64)

    def forward(self, x):
        parts = self.into(self.norm(x)).unflatten(-1, (3, 4, 16)).movedim(2, 0)
        query, key, value = parts.transpose(2, 3).unbind(0)
        return self.out(self.attend(query, key, value).transpose(1, 2).flatten(2))


def test_composites_around_the_graph_mode():
    torch.manual_seed(0)
    x, model = torch.randn(1, 5, 64), Block().eval()
    specs = [
        ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"]),
        ExternalizeSpec(SDPA, "scaled_dot_product_attention", ["scale", "is_causal"]),
    ]
    coreai_torch._patch_model_for_externalization(model, specs)
    finished = quantized(model, "graph", torch.int4, x)
    exported = torch.export.export(finished, (x,)).run_decompositions(get_decomp_table())
    found = coreai_torch._subexport_and_restore(model, exported)
    assert len(found) == 2
    converter = TorchConverter()
    converter.add_exported_program(exported, _externalized_exported_programs=found)
    program = converter.to_coreai()
    for name in ("rms_norm", "scaled_dot_product_attention"):
        assert f'composite_declaration<"{name}"' in str(program)
    close(ran(program, x), finished(x))
    weights = 4 * 64 * 64 / 2
    assert_packed(program, weights, 12_000)
