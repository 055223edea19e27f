"""Every public name of the API specification, and the private names that others import, exist."""

import dataclasses
import importlib
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version

import pytest
import torch
from runtime import descriptor

import coreai_torch

# `module:attribute.path`, or a module.
NAMES = [
    "coreai_torch:TorchConverter",
    "coreai_torch:TorchConverter.Mode.DEBUG",
    "coreai_torch:TorchConverter.Mode.RELEASE",
    "coreai_torch:TorchConverter.add_exported_program",
    "coreai_torch:TorchConverter.add_pytorch_module",
    "coreai_torch:TorchConverter.clear",
    "coreai_torch:TorchConverter.register_custom_kernels",
    "coreai_torch:TorchConverter.register_torch_lowering",
    "coreai_torch:TorchConverter.to_coreai",
    "coreai_torch:ExternalizeSpec",
    "coreai_torch:MetalParameter",
    "coreai_torch:TorchMetalKernel",
    "coreai_torch:__version__",
    "coreai_torch:generate_composite_decl",
    "coreai_torch:get_decomp_table",
    "coreai_torch._aten_to_core:_aten_to_core_resolver",
    "coreai_torch._aten_to_core:_higher_order_resolver",
    "coreai_torch._compression._floatx:Float4Tensor",
    "coreai_torch._compression._floatx:SubbyteTensor",
    "coreai_torch._compression._intx:IntxTensor",
    "coreai_torch._compression._intx:UintxTensor",
    "coreai_torch._compression._intx:pack_intx",
    "coreai_torch._compression._intx:pack_uintx",
    "coreai_torch._compression._types:builtin_to_string",
    "coreai_torch._compression._types:is_int",
    "coreai_torch._compression._types:nptype_from_builtin",
    "coreai_torch._compression._types:string_to_builtin",
    "coreai_torch._compression.custom_layers:ActivationDequantizeModule",
    "coreai_torch._compression.custom_layers:ActivationQuantizeModule",
    "coreai_torch._compression.custom_layers:PalettizeModule",
    "coreai_torch._compression.custom_layers:ScaledPalettizeModule",
    "coreai_torch._compression.custom_layers:SparseModule",
    "coreai_torch._compression.custom_layers:WeightDequantizeModule",
    "coreai_torch._compression.utils:wrap_for_parametrization",
    "coreai_torch._utils:generate_composite_decl",
    "coreai_torch._utils:get_operand",
    "coreai_torch._utils:get_operands",
    "coreai_torch._utils:print_graph",
    "coreai_torch.composite_ops:GatedDeltaUpdate",
    "coreai_torch.composite_ops:GatherMM",
    "coreai_torch.composite_ops:RMSNorm",
    "coreai_torch.composite_ops:RMSNormImpl",
    "coreai_torch.composite_ops:RoPE",
    "coreai_torch.composite_ops:SDPA",
    "coreai_torch.composite_ops._gather_mm:_gather",
    "coreai_torch.composite_ops._sdpa:scaled_dot_product_attention",
    "coreai_torch.debugging.debug_info:strip_debug_info",
    "coreai_torch.debugging.inspector:CoreAIInspector",
    "coreai_torch.debugging.torch_utils:load_intermediates",
    "coreai_torch.debugging.torch_utils:save_intermediates",
    "coreai_torch.debugging.search_strategy:LevelOrderStrategy.auto",
    "coreai_torch.debugging.search_strategy:LevelOrderStrategy.bisection",
    "coreai_torch.debugging.search_strategy:LevelOrderStrategy.top_down",
    "coreai_torch.asset.program:Program.get_graph",
    "coreai_torch.asset.program:Program.optimize",
    "coreai_torch.asset.program:Program.save_asset",
    "coreai_torch.debugging.benchmarker:BenchmarkResult.get_module_timings",
    "coreai_torch.debugging.benchmarker:BenchmarkResult.write_summary",
    "coreai_torch.debugging.comparator:Comparator.compare_with_tolerance",
    "coreai_torch.debugging.graph_match:GraphDiff.is_isomorphic",
    "coreai_torch.debugging.graph_match:GraphDiff.summary",
    "coreai_torch.debugging.inspector:CoreAIInspector.get_intermediates_for_ops",
    "coreai_torch.debugging.validator:Validator.check",
    "coreai_torch.debugging.validator:Validator.check_for_infs",
    "coreai_torch.debugging.validator:Validator.check_for_nans",
    "coreai_torch.debugging.validator:create_validator_for_coreai_program",
    "coreai_torch.debugging.validator:create_validator_for_exported_program",
    "coreai_torch.debugging.comparator:create_comparator_for_programs",
    "coreai_torch.debugging.graph_diff:compute_coreai_program_diff",
    "coreai_torch.debugging.graph_diff:compute_exported_program_diff",
    "coreai_torch.debugging.graph_diff:write_diff",
    "coreai_torch.debugging.benchmarker:benchmark_coreai_program",
]


def resolve(name: str) -> object:
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for attribute in path.split(".") if path else ():
        found = getattr(found, attribute)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name):
    resolve(name)


def test_all_lists_the_public_names():
    listed = {
        name.removeprefix("coreai_torch:") for name in NAMES if name.startswith("coreai_torch:")
    }
    assert set(coreai_torch.__all__) >= {name for name in listed if "." not in name} - {
        "__version__"
    }


def test_version_equals_the_distribution():
    assert coreai_torch.__version__ == version("coreai-torch")
    assert re.match(r"\d+\.\d+\.\d+", coreai_torch.__version__)


def test_metal_parameter_is_the_class_of_coreai():
    from coreai.authoring import MetalParameter

    assert coreai_torch.MetalParameter is MetalParameter


@pytest.fixture(scope="module")
def program():
    exported = torch.export.export(torch.nn.ReLU(), (torch.randn(2, 3),))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    return coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()


def test_optimize_is_in_place_and_idempotent(program):
    before = descriptor(program)
    assert program.optimize() is None
    once = str(program)
    program.optimize()
    assert str(program) == once
    assert descriptor(program) == before


@pytest.mark.parametrize("method", ["get_graph", "_get_graph"])
def test_get_graph_by_name(program, method):
    assert "coreai.graph @main" in str(getattr(program, method)("main"))


RESOLVERS = {
    "_aten_to_core_resolver": torch.ops.aten.add.Tensor,
    "_higher_order_resolver": torch.ops.higher_order.cond,
}


@pytest.mark.parametrize("name", RESOLVERS)
def test_resolver_is_a_read_only_mapping_by_op_name(name):
    resolver = resolve(f"coreai_torch._aten_to_core:{name}")
    assert isinstance(resolver, Mapping)
    key = str(RESOLVERS[name])
    assert key in resolver
    assert f"{key}_that_does_not_exist" not in resolver
    with pytest.raises(TypeError):
        resolver[key] = None


def test_compression_ops_exist_if_torch_is_imported_after_the_package():
    script = "import coreai_torch\nimport torch\ntorch.ops.coreai.lut_to_dense.default"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# `module:class`, with the fields of its instances that the specification names.
FIELDS = {
    "coreai_torch:ExternalizeSpec": {"target_class", "composite_op_name", "composite_attrs"},
    "coreai_torch.debugging.comparator:ComparisonResult": {"failed_nodes"},
    "coreai_torch.debugging.graph_match:GraphDiff": {"source_graph", "target_graph"},
    "coreai_torch.debugging.validator:ValidationResult": {"failed_nodes"},
}


@pytest.mark.parametrize("name", FIELDS)
def test_result_has_the_specified_fields(name):
    fields = {field.name for field in dataclasses.fields(resolve(name))}
    assert fields >= FIELDS[name]
