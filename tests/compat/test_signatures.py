"""Names, order, kinds and defaults of parameters are those of the API specification."""

import dataclasses
import importlib
import inspect

import pytest
from coreai.authoring import AIProgram

import coreai_torch
from coreai_torch import composite_ops

# `*` separates keyword-only parameters. Additional parameters are allowed if they have a default.
SURFACE = {
    "coreai_torch:TorchConverter": "",
    "coreai_torch:TorchConverter.add_exported_program": (
        "self, exported_program, input_names=None, output_names=None, state_names=None, "
        "entrypoint_name='main'"
    ),
    "coreai_torch:TorchConverter.add_pytorch_module": (
        "self, module, export_fn, externalize_modules=None, input_names=None, output_names=None, "
        "state_names=None, entrypoint_name='main'"
    ),
    "coreai_torch:TorchConverter.to_coreai": "self, *, entrypoints=None",
    "coreai_torch:TorchConverter.clear": "self, *, entrypoints=None",
    "coreai_torch:TorchConverter.register_torch_lowering": (
        "self, qualified_name, allow_override=False"
    ),
    "coreai_torch:TorchConverter.register_custom_kernels": "self, kernels",
    "coreai_torch:get_decomp_table": "",
    "coreai_torch:generate_composite_decl": (
        "context, op_name, input_names, output_names, op_attributes"
    ),
    "coreai_torch:ExternalizeSpec": "target_class, composite_op_name=None, composite_attrs=None",
    "coreai_torch:TorchMetalKernel": (
        "name, input_names, result_names, src, torch_defn, metal_params=None, helper_src=None, "
        "template_dtypes=None"
    ),
    "coreai_torch:TorchMetalKernel.__call__": (
        "self, *args, threads_per_grid, threads_per_thread_group, result_shapes"
    ),
    "coreai_torch:TorchMetalKernel.emulate": (
        "self, *args, threads_per_grid, threads_per_thread_group, result_shapes"
    ),
    "coreai_torch:convert": (
        "model_or_exported, args=None, kwargs=None, *, dynamic_shapes=None, input_names=None, "
        "output_names=None, state_names=None, externalize_modules=None, verify=True, output=None"
    ),
    "coreai_torch._utils:get_operand": "values_map, node, i, loc",
    "coreai_torch._utils:get_operands": "values_map, node, indices, loc",
    "coreai_torch.asset.program:Program.save_asset": "self, path, metadata=None",
    "coreai_torch.asset.program:Program.optimize": "self",
    "coreai_torch.composite_ops:RMSNormImpl.forward": "self, input, scale",
    "coreai_torch.composite_ops:RMSNorm.forward": "self, x",
    "coreai_torch.composite_ops:RoPE.forward": (
        "self, input, cos=None, sin=None, position_ids=None, freqs=None, offset=None"
    ),
    "coreai_torch.composite_ops:SDPA.forward": (
        "self, query, key, value, attn_mask=None, sinks=None"
    ),
    "coreai_torch.composite_ops:GatherMM.forward": (
        "self, lhs, rhs, lhs_indices=None, rhs_indices=None"
    ),
    "coreai_torch.composite_ops:GatedDeltaUpdate.forward": (
        "self, query, key, value, g, beta, initial_state"
    ),
    "coreai_torch.debugging.graph_diff:compute_exported_program_diff": "source, target",
    "coreai_torch.debugging.graph_diff:compute_coreai_program_diff": "source, target",
    "coreai_torch.debugging.graph_diff:write_diff": "diff, output",
    "coreai_torch.debugging.validator:Validator.check_for_nans": "self, *, inputs",
    "coreai_torch.debugging.validator:Validator.check_for_infs": "self, *, inputs",
    "coreai_torch.debugging.validator:Validator.check": "self, predicate, *, inputs",
    "coreai_torch.composite_ops:RMSNormImpl": "eps=1e-5",
    "coreai_torch.composite_ops:RMSNorm": "dim, eps=1e-5, n_heads=None",
    "coreai_torch.composite_ops:RoPE": "scale=1.0, base=1e4, dims=None, interleaved=False",
    "coreai_torch.composite_ops:SDPA": "scale=None, is_causal=False, window_size=0",
    "coreai_torch.composite_ops:GatherMM": "num_batch_axes=0",
    "coreai_torch.composite_ops:GatedDeltaUpdate": "use_qk_l2_norm=True",
    "coreai_torch.debugging.validator:create_validator_for_exported_program": "ep",
    "coreai_torch.debugging.validator:create_validator_for_coreai_program": (
        "program, function_name"
    ),
    "coreai_torch.debugging.comparator:create_comparator_for_programs": (
        "*, source_program, target_program, target_entry_point='main'"
    ),
    "coreai_torch.debugging.comparator:Comparator.compare_with_tolerance": (
        "self, *, inputs, rtol, atol"
    ),
    "coreai_torch.debugging.inspector:CoreAIInspector": "model, function_name='main'",
    "coreai_torch.debugging.inspector:CoreAIInspector.get_intermediates_for_ops": (
        "self, ids, *, inputs"
    ),
    "coreai_torch.debugging.benchmarker:benchmark_coreai_program": (
        "coreai_program, inputs, num_runs=50"
    ),
    "coreai_torch.debugging.benchmarker:BenchmarkResult.write_summary": "self, stream",
    "coreai_torch.debugging.benchmarker:BenchmarkResult.get_module_timings": "self",
    "coreai_torch.debugging.search_strategy:LevelOrderStrategy.bisection": "graph, batch_size=10",
    "coreai_torch.debugging.search_strategy:LevelOrderStrategy.top_down": "graph",
    "coreai_torch.debugging.search_strategy:LevelOrderStrategy.auto": "graph",
    "coreai_torch.debugging.torch_utils:save_intermediates": (
        "program, inputs, output_dir, node_filter=None"
    ),
    "coreai_torch.debugging.torch_utils:load_intermediates": "path",
}

COROUTINES = {
    "coreai_torch.debugging.validator:create_validator_for_coreai_program",
    "coreai_torch.debugging.validator:Validator.check_for_nans",
    "coreai_torch.debugging.validator:Validator.check_for_infs",
    "coreai_torch.debugging.validator:Validator.check",
    "coreai_torch.debugging.comparator:create_comparator_for_programs",
    "coreai_torch.debugging.comparator:Comparator.compare_with_tolerance",
    "coreai_torch.debugging.inspector:CoreAIInspector.get_intermediates_for_ops",
    "coreai_torch.debugging.benchmarker:benchmark_coreai_program",
}


def resolved(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def documented(text):
    """Parse a signature that is written without types."""
    return inspect.signature(eval(f"lambda {text}: None")).parameters


@pytest.mark.parametrize("name", SURFACE)
def test_parameters_match_the_specification(name):
    wanted = documented(SURFACE[name])
    actual = dict(inspect.signature(resolved(name)).parameters)
    for parameter in wanted.values():
        found = actual.pop(parameter.name)
        assert found.kind is parameter.kind, parameter
        # A parameter that the specification requires may have a default.
        assert parameter.default in (found.default, parameter.empty), parameter
    extra = [one for one in actual.values() if one.kind is not one.VAR_KEYWORD]
    assert all(one.default is not one.empty for one in extra), extra
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [p.name for p in wanted.values() if p.kind in positional]
    given = inspect.signature(resolved(name)).parameters.values()
    assert [p.name for p in given if p.kind in positional][: len(places)] == places


@pytest.mark.parametrize("name", sorted(COROUTINES))
def test_specified_coroutine_is_a_coroutine_function(name):
    assert inspect.iscoroutinefunction(resolved(name))


@pytest.mark.parametrize("name", composite_ops.__all__)
def test_every_composite_op_has_a_version(name):
    module = getattr(composite_ops, name)
    assert (module(4) if name == "RMSNorm" else module()).version == 1


def test_spec_is_a_dataclass_and_program_is_an_ai_program():
    assert dataclasses.is_dataclass(coreai_torch.ExternalizeSpec)
    returned = inspect.signature(coreai_torch.TorchConverter.to_coreai).return_annotation
    assert issubclass(
        getattr(importlib.import_module("coreai_torch.asset.program"), returned), AIProgram
    )
