"""Private names that other programs import, and the programs that do.

`tests/compat/test_clients.py` checks that each name exists. A name may be removed when no listed
program imports it any more.
"""

from __future__ import annotations

COREAI_MODELS = "coreai-models 86b363d"
COREAI_OPT = "coreai-opt 0.3.0"
EXECUTORCH = "executorch 1.5.1"
PUBLISHED = "programs written for coreai-torch 0.4.3"

# `module:attribute`, relative to this package, with the programs that import it.
NAMES: dict[str, tuple[str, ...]] = {
    ":_patch_model_for_externalization": (COREAI_OPT,),
    ":_subexport_and_restore": (COREAI_OPT,),
    "_aten_to_core:_aten_to_core_resolver": (EXECUTORCH,),
    "_aten_to_core:_higher_order_resolver": (EXECUTORCH,),
    "_compression._floatx:Float4Tensor": (COREAI_MODELS, COREAI_OPT),
    "_compression._floatx:SubbyteTensor": (COREAI_OPT,),
    "_compression._intx:IntxTensor.from_unpacked": (COREAI_OPT,),
    "_compression._intx:SubbyteTensor": (COREAI_OPT,),
    "_compression._intx:UintxTensor.from_unpacked": (COREAI_OPT,),
    "_compression._intx:pack_intx": (COREAI_OPT,),
    "_compression._intx:pack_uintx": (COREAI_OPT,),
    "_compression._types:builtin_to_string": (COREAI_OPT,),
    "_compression._types:is_int": (COREAI_OPT,),
    "_compression._types:nptype_from_builtin": (COREAI_OPT,),
    "_compression._types:string_to_builtin": (COREAI_OPT,),
    "_compression.custom_layers:ActivationDequantizeModule": (COREAI_OPT,),
    "_compression.custom_layers:ActivationQuantizeModule": (COREAI_OPT,),
    "_compression.custom_layers:PalettizeModule": (COREAI_OPT,),
    "_compression.custom_layers:ScaledPalettizeModule": (COREAI_OPT,),
    "_compression.custom_layers:SparseModule": (COREAI_OPT,),
    "_compression.custom_layers:WeightDequantizeModule": (COREAI_MODELS, COREAI_OPT),
    "_compression.custom_layers:constexpr_blockwise_shift_scale": (COREAI_OPT,),
    "_compression.custom_layers:dequantize": (COREAI_OPT,),
    "_compression.custom_layers:lut_to_dense": (COREAI_OPT,),
    "_compression.custom_layers:quantize": (COREAI_OPT,),
    "_compression.custom_layers:sparse_to_dense": (COREAI_OPT,),
    "_compression.utils:inject_subbyte_tensors": (COREAI_OPT,),
    "_compression.utils:wrap_for_parametrization": (COREAI_MODELS, COREAI_OPT),
    "_custom_to_core:_custom_to_core_resolver": (EXECUTORCH,),
    "_decomp:get_decomp_table": (EXECUTORCH,),
    "_torch_metal_kernel:TorchMetalKernel": (PUBLISHED,),
    "_utils:_EXTERNALIZE_NAMESPACE": (COREAI_OPT,),
    "_utils:generate_composite_decl": (COREAI_MODELS,),
    "_utils:get_operand": (COREAI_MODELS, PUBLISHED),
    "_utils:get_operands": (COREAI_MODELS, PUBLISHED),
    "_utils:get_promoted_type": (PUBLISHED,),
    "_utils:print_graph": (PUBLISHED,),
    "composite_ops._gather_mm:_gather": (COREAI_MODELS,),
    "composite_ops._rope:rope": (PUBLISHED,),
    "composite_ops._sdpa:SDPA": (PUBLISHED,),
    "debugging.debug_info:strip_debug_info": (COREAI_MODELS,),
    "debugging.graph:create_graph_from_coreai_program": (PUBLISHED,),
    "debugging.graph:create_graph_from_exported_program": (PUBLISHED,),
    "debugging.histogram:operation_histogram": (PUBLISHED,),
    "debugging.inspector:CachingInspector": (PUBLISHED,),
    "debugging.inspector:TorchFXInspector": (PUBLISHED,),
    "externalize:ExternalizeSpec": (PUBLISHED,),
    "externalize:_find_marked_submodules": (COREAI_OPT,),
    "externalize:_torch_export_module": (PUBLISHED,),
}
