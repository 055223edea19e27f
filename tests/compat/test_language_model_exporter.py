"""A decoder layer exported in the manner of coreai-models, with its composites and its op."""

import pytest
import torch
from compat.programs import assert_close, composites
from coreai.authoring.types import AllocationType, HardwareConstraints
from coreai.runtime import AIModelAssetMetadata
from runtime import descriptor, run_with_state
from torch import nn

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table
from coreai_torch.composite_ops import SDPA, GatherMM, RMSNorm, RMSNormImpl, RoPE
from coreai_torch.debugging.debug_info import strip_debug_info

HEADS, SIZE, LENGTH = 2, 8, 16


@torch.library.custom_op("coreai::client_cache_update", mutates_args=())
def client_cache_update(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat([new, cache[:, :, new.shape[2] :]], 2)


@client_cache_update.register_fake
def _(cache, new):
    return torch.empty_like(cache)


def lower_update(values_map, node, location):
    from coreai._compiler.dialects import coreai

    cache, new = (values_map[argument.name] for argument in node.args)
    begin = coreai.constant(torch.tensor([0, 0, 3, 0], dtype=torch.int32).numpy())
    stop = coreai.constant(torch.tensor([1, HEADS, LENGTH, SIZE], dtype=torch.int32).numpy())
    stride = coreai.constant(torch.ones(4, dtype=torch.int32).numpy())
    rest = coreai.slice_(cache, begin, stop, stride, loc=location)
    return coreai.concat(2, [new, rest], loc=location)


class Attention(SDPA):
    """A subclass, which a specification of its base class matches."""


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.rope = RMSNorm(HEADS * SIZE), RoPE()
        self.attend, self.switch = Attention(), GatherMM()
        self.into = nn.Linear(HEADS * SIZE, 3 * HEADS * SIZE)
        self.experts = nn.Parameter(torch.randn(4, HEADS * SIZE, 6))
        self.register_buffer("chosen", torch.tensor([2], dtype=torch.uint16))

    def forward(self, x, positions, key_cache):
        parts = self.into(self.norm(x)).unflatten(-1, (3, HEADS, SIZE)).movedim(2, 0)
        query, key, value = parts.transpose(2, 3).unbind(0)
        query, key = (self.rope(part, position_ids=positions) for part in (query, key))
        key_cache.copy_(torch.ops.coreai.client_cache_update(key_cache, key))
        mixed = self.attend(query, key_cache[:, :, : x.shape[1]], value)
        mixed = torch.nn.functional.silu(mixed.transpose(1, 2).flatten(2))
        return self.switch(mixed, self.experts, rhs_indices=self.chosen)


SPECS = [
    ExternalizeSpec(GatherMM, "gather_mm", ["num_batch_axes"]),
    ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"]),
    ExternalizeSpec(
        target_class=RoPE,
        composite_op_name="rope",
        composite_attrs=["scale", "base", "dims", "interleaved"],
    ),
    ExternalizeSpec(SDPA, "scaled_dot_product_attention", ["scale", "is_causal", "window_size"]),
]
NAMES = {
    "input_names": ["input", "position_ids"],
    "output_names": ["logits"],
    "state_names": ["keyCache"],
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Layer().eval()


@pytest.fixture(scope="module")
def arguments():
    positions = torch.arange(3, dtype=torch.int32)[None]
    return torch.randn(1, 3, HEADS * SIZE), positions, torch.randn(1, HEADS, LENGTH, SIZE)


def exported(model, arguments):
    args = (*arguments[:2], arguments[2].clone())
    return torch.export.export(model, args).run_decompositions(get_decomp_table())


def check(program, model, arguments):
    """Run the program and compare the output and the state."""
    x, positions, cache = arguments
    want_cache = cache.clone()
    want = model(x, positions, want_cache)
    feeds = {"input": x, "position_ids": positions}
    outputs, states = run_with_state(program, feeds, {"keyCache": cache.clone()})
    assert_close(outputs["logits"], want)
    assert_close(states["keyCache"], want_cache)


def test_export_registers_lowerings_after_adding_the_module(model, arguments, tmp_path):
    converter = TorchConverter(mode=TorchConverter.Mode.DEBUG)
    converter.add_pytorch_module(
        model,
        export_fn=lambda module: exported(module, arguments),
        externalize_modules=SPECS,
        **NAMES,
    )
    converter.register_torch_lowering("coreai::client_cache_update.default")(lower_update)
    program = converter.to_coreai()
    found = descriptor(program)
    assert found.input_names == ["input", "position_ids"]
    assert (found.output_names, found.state_names) == (["logits"], ["keyCache"])
    counts = {
        spec.composite_op_name: len(composites(program, spec.composite_op_name)) for spec in SPECS
    }
    assert all(counts.values()), counts
    check(program, model, arguments)
    program.optimize()
    metadata = AIModelAssetMetadata()
    metadata.author = "us"
    asset = program.save_asset(tmp_path / "decoder.aimodel", metadata)
    assert asset.metadata.author == "us"
    strip_debug_info(program)
    check(program, model, arguments)


def test_export_registers_lowerings_before_adding_the_program(model, arguments):
    converter = TorchConverter()
    converter.register_torch_lowering("coreai::client_cache_update.default")(lower_update)
    program = converter.add_exported_program(
        exported(model, arguments), entrypoint_name="main", **NAMES
    ).to_coreai()
    constraints = HardwareConstraints(AllocationType.IOSurface, (1,) * 5, (1,) * 4)
    program.set_hardware_constraints("main", {"keyCache": constraints})
    assert "IOSurface" in str(program)
    program.optimize()
    assert "IOSurface" in str(program)
    check(program, model, arguments)
