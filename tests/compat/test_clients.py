"""Small programs in the manner of those that other people built on the converter."""

import copy
import importlib
import operator

import numpy as np
import pytest
import torch
from compat.programs import assert_close
from coreai.authoring import AIProgram
from runtime import descriptor, run, run_with_state
from torch import nn

import coreai_torch
from coreai_torch import ExternalizeSpec, TorchConverter, externalize, get_decomp_table
from coreai_torch.compat.names import NAMES
from coreai_torch.composite_ops import SDPA, GatherMM, RMSNorm, RMSNormImpl, RoPE
from coreai_torch.composite_ops._gather_mm import _gather
from coreai_torch.composite_ops._rope import rope


@torch.library.custom_op("coreai::client_double", mutates_args=())
def client_double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@client_double.register_fake
def _(x):
    return torch.empty_like(x)


class Doubles(nn.Module):
    def forward(self, x):
        return torch.ops.coreai.client_double(x) + 1


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), RMSNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x)) * 2)


class Cache(nn.Module):
    def forward(self, x, cache):
        cache.add_(x)
        return cache * 2


def export(model, *args, **options):
    exported = torch.export.export(model.eval(), args, **options)
    return exported.run_decompositions(get_decomp_table())


def lower_double(values_map, node, loc):
    from coreai._compiler.dialects import coreai

    x = values_map[node.args[0].name]
    return coreai.broadcasting_add(x, x, loc=loc)


@pytest.mark.parametrize("name", NAMES)
def test_name_that_others_import_exists(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(".".join(filter(None, ("coreai_torch", module))))
    assert operator.attrgetter(path)(found) is not None
    assert NAMES[name]


# coreai-models: lowerings of `coreai::` ops that it defines, registered after the program is added.


def test_lowering_of_an_own_op_is_registered_after_the_program_is_added():
    x = torch.randn(2, 3)
    converter = TorchConverter()
    converter.add_pytorch_module(model=Doubles(), export_fn=lambda m: export(m, x))
    converter.register_torch_lowering("coreai::client_double.default")(lower_double)
    program = converter.to_coreai()
    (got,) = run(program, {"x": x}).values()
    assert_close(got, x * 2 + 1)


def test_missing_lowering_is_reported_by_to_coreai():
    converter = TorchConverter().add_exported_program(export(Doubles(), torch.randn(2)))
    with pytest.raises(ValueError, match=r"no lowering for coreai\.client_double\.default"):
        converter.to_coreai()


@pytest.mark.parametrize(
    "name",
    [
        "coreai::quantize",
        "coreai::undefined",
        "coreaix::undefined",
        "aten::relu",
        "aten::undefined",
        "higher_order::cond",
        "higher_order::undefined",
    ],
)
def test_builtin_and_undefined_ops_of_reserved_namespaces_are_rejected(name):
    with pytest.raises(ValueError, match="namespace"):
        TorchConverter().register_torch_lowering(name)
    TorchConverter().register_torch_lowering(name, allow_override=True)


@pytest.mark.parametrize("namespace", ["coreai", "coreaix", "aten"])
def test_op_of_the_program_in_a_reserved_namespace_is_accepted(namespace):
    with torch.library._scoped_library(namespace, "FRAGMENT") as library:
        library.define("client_fragment(Tensor x) -> Tensor")
        converter = TorchConverter()
        converter.register_torch_lowering(f"{namespace}::client_fragment.default")(lower_double)
        with pytest.raises(ValueError, match="already registered"):
            converter.register_torch_lowering(f"{namespace}::client_fragment.default")


def test_converter_does_not_define_the_ops_of_coreai_models():
    for name in ("mutable_slice_update", "mutable_cache_update_and_fetch"):
        assert not hasattr(torch.ops.coreai, name)


def test_composite_declaration_takes_a_name_and_a_version():
    import coreai.authoring

    from coreai_torch._utils import generate_composite_decl

    with coreai.authoring.Context() as context:
        for args, options in [
            ((context, "update", ["x"], ["y"], {"axis": 1}), {}),
            ((context,), {"composite_name": "update", "input_names": ["x"], "output_names": ["y"]}),
        ]:
            assert '"update"' in str(generate_composite_decl(*args, **options))
        made = generate_composite_decl(context, "update", ["x"], ["y"], {}, version=3)
    assert "version = 3 : si64" in str(made)


# coreai-models: composites.


def test_inner_module_of_rms_norm():
    norm = RMSNorm(8)
    x = torch.randn(2, 8)
    assert torch.equal(norm.rmsnorm_impl(x, norm.weight), norm(x))
    assert norm.norm is norm.rmsnorm_impl


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint8, torch.int16])
def test_gather_takes_narrow_indices(dtype):
    weight, x = torch.randn(5, 4, 3), torch.randn(2, 1, 4)
    indices = torch.tensor([4, 0]).to(dtype)
    model = GatherMM()
    want = x @ weight[[4, 0]]
    assert torch.equal(_gather(weight, indices), weight[[4, 0]])
    assert_close(model(x, weight, rhs_indices=indices), want)
    exported = torch.export.export(model, (x, weight), {"rhs_indices": indices})
    exported = exported.run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()
    feed = {"lhs": x, "rhs": weight, "rhs_indices": indices}
    assert_close(run(program, feed)["y"], want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_hugging_face_arithmetic_of_attention(dtype):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, k, v = (torch.randn(1, n, 5, 8, dtype=dtype) for n in (4, 2, 2))
    mask = torch.full((5, 5), torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]
    module = nn.Module()
    module.num_key_value_groups = 2
    want, _ = llama.eager_attention_forward(module.eval(), q, k, v, mask, scaling=8**-0.5)
    got = SDPA(is_causal=True, _use_hf_impl=True)(q, k, v)
    assert torch.equal(got, want.transpose(1, 2))


def test_hugging_face_arithmetic_of_sinks():
    oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    q, k, v = (torch.randn(1, n, 5, 8, dtype=torch.bfloat16) for n in (4, 2, 2))
    module = nn.Module()
    module.num_key_value_groups, module.sinks = 2, nn.Parameter(torch.randn(4).bfloat16())
    want, _ = oss.eager_attention_forward(module.eval(), q, k, v, None, scaling=8**-0.5)
    got = SDPA(_use_hf_impl=True)(q, k, v, sinks=module.sinks)
    assert torch.equal(got, want.transpose(1, 2))


def test_hugging_face_arithmetic_of_rotary_embedding():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    x, positions = torch.randn(1, 2, 5, 8, dtype=torch.float16), torch.arange(3, 8)[None]
    frequencies = 1 / 1e4 ** (torch.arange(0, 8, 2) / 8)
    angles = (positions[..., None] * frequencies).repeat(1, 1, 2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    want, _ = llama.apply_rotary_pos_emb(x, x, cos, sin)
    assert torch.equal(RoPE(_use_hf_impl=True)(x, position_ids=positions), want)
    plain = rope(x, position_ids=positions)
    assert torch.equal(plain, RoPE()(x, position_ids=positions))


# coreai-models: static shapes and constraints of a program with state, before optimize().


@pytest.fixture(scope="module")
def cached():
    size = torch.export.Dim("n", min=2, max=64)
    shapes = {"x": {0: size}, "cache": {0: size}}
    exported = export(Cache(), torch.randn(4, 3), torch.randn(4, 3), dynamic_shapes=shapes)
    return TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()


def test_static_shapes_of_a_program_with_state(cached):
    program = copy.deepcopy(cached)
    shapes = {'"8"': {"x": (8, 3), "cache": (8, 3)}, '"2"': {"x": (2, 3), "cache": (2, 3)}}
    program.set_static_shape_config("main", shapes)
    program.optimize()
    assert "@main_8" in str(program)
    assert "@main_2" in str(program)
    assert descriptor(program, "main_8").state_names == ["cache"]
    x, cache = torch.randn(8, 3), torch.randn(8, 3)
    outputs, states = run_with_state(program, {"x": x}, {"cache": cache}, entrypoint="main_8")
    assert_close(outputs["y"], (cache + x) * 2)
    assert_close(states["cache"], cache + x)


def test_static_shape_of_another_rank_is_rejected(cached):
    with pytest.raises(RuntimeError, match="does not fit"):
        copy.deepcopy(cached).set_static_shape_config("main", {"a": {"x": (8,)}})
    with pytest.raises(ValueError, match="graph 'other' not found"):
        copy.deepcopy(cached).set_static_shape_config("other", {})


def constraints_of(program, name):
    """Return the types of the ports of an entry point that have constraints."""
    graph = program._get_graph(name)
    types = (*graph.type.inputs, *graph.type.results)
    return [str(one) for one in types if "constraints" in str(one)]


def test_constraints_after_static_shapes_apply_to_each_shape(cached):
    from coreai.authoring.constraints import AllocationType, HardwareConstraints

    config = {'"8"': {"x": (8, 3), "cache": (8, 3)}, "two": {"x": (2, 3), "cache": (2, 3)}}
    heap = HardwareConstraints(AllocationType.Heap, [1, 1, 64], [1, 1])
    late, plain = copy.deepcopy(cached), copy.deepcopy(cached)
    late.set_static_shape_config("main", config)
    plain.set_static_shape_config("main", config)
    late = copy.deepcopy(late)
    late.set_hardware_constraints("main", {"x": heap, "y": heap})
    for program in (late, plain):
        program.optimize()
    for name in ("main_8", "main_two"):
        assert len(constraints_of(late, name)) == 2
        assert not constraints_of(plain, name)
    with pytest.raises(RuntimeError, match="other"):
        late.set_hardware_constraints("other", {"x": heap})


# executorch: compares the types of a graph's inputs and outputs with those of its delegate.


def test_states_of_a_looked_up_graph_are_tensors(cached, tmp_path):
    program = copy.deepcopy(cached)
    graph = program._get_graph("main")
    types = [str(t) for t in (*graph.type.inputs, *graph.type.results)]
    assert types == ["tensor<?x3xf32>"] * 4  # the state and x; the new state and y
    assert program.get_graph("main").operation == graph.operation
    assert program._get_graph("other") is None
    x, cache = torch.randn(8, 3), torch.randn(8, 3)
    for _ in range(2):  # before and after optimize()
        outputs, states = run_with_state(copy.deepcopy(program), {"x": x}, {"cache": cache})
        assert_close(outputs["y"], (cache + x) * 2)
        assert_close(states["cache"], cache + x)
        assert "coreai.handle" in str(program.mlir_module)
        program.optimize()
        assert "coreai.handle" in str(program._get_graph("main").type.inputs[0])


def test_lookup_of_a_graph_changes_neither_shapes_nor_constraints(cached):
    program, looked_up = copy.deepcopy(cached), copy.deepcopy(cached)
    looked_up._get_graph("main")
    for one in (program, looked_up):
        one.set_hardware_constraints("main", {})
        one.set_static_shape_config("main", {"a": {"x": (8, 3), "cache": (8, 3)}})
        one.optimize()
    assert str(program) == str(looked_up)


# coreai-opt: the class of the program, and externalization around a quantizer.


def test_program_has_the_class_of_coreai(tmp_path):
    program = TorchConverter().add_exported_program(export(nn.ReLU(), torch.ones(2))).to_coreai()
    assert type(program) is AIProgram
    assert type(copy.deepcopy(program)) is AIProgram
    assert "coreai.relu" in str(program._mlir_module)
    asset = copy.deepcopy(program).save_asset(tmp_path / "relu.aimodel", {"author": "me"})
    assert asset.metadata.author == "me"
    assert type(asset.program) is AIProgram
    assert program._repr_html_()


def test_programs_of_others_keep_their_methods(tmp_path):
    made = TorchConverter().add_exported_program(export(nn.ReLU(), torch.ones(2))).to_coreai()
    other = AIProgram._from_mlir_module(made.mlir_module)
    with pytest.raises(AttributeError):  # the original method takes no string
        other.save_asset(str(tmp_path / "relu.aimodel"))


def test_externalization_in_two_steps():
    torch.manual_seed(0)
    model, x = Normed().eval(), torch.randn(2, 8)
    want = model(x)
    spec = ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"])
    assert coreai_torch._patch_model_for_externalization(model, [spec]) is None
    assert externalize._find_marked_submodules(model) == [model.norm.rmsnorm_impl]
    exported = export(model, x, dynamic_shapes=({0: torch.export.Dim("n", min=2, max=9)},))
    targets = [str(node.target) for node in exported.graph.nodes]
    assert sum(externalize._EXTERNALIZE_NAMESPACE in target for target in targets) == 1
    found = coreai_torch._subexport_and_restore(model, exported)
    assert [(f.composite_op_name, f.composite_input_names) for f in found] == [
        ("rms_norm", ["input", "scale"])
    ]
    assert externalize._find_marked_submodules(model) == []
    assert torch.equal(model(x), want)
    converter = TorchConverter()
    converter.add_exported_program(
        exported, output_names=["y"], _externalized_exported_programs=found
    )
    program = converter.to_coreai()
    assert 'composite_declaration<"rms_norm"' in str(program)
    assert_close(run(program, {"x": x})["y"], want)


def test_opaque_call_without_its_program_is_rejected():
    model, x = Normed().eval(), torch.randn(2, 8)
    coreai_torch._patch_model_for_externalization(model, [RMSNormImpl, nn.Linear])
    exported = export(model, x)
    first, *_ = coreai_torch._subexport_and_restore(model, exported)
    with pytest.raises(ValueError, match="not among the externalized programs"):
        TorchConverter().add_exported_program(exported, _externalized_exported_programs=[first])


def test_subbyte_weights_are_packed_in_the_exported_program():
    from coreai_torch._compression import custom_layers
    from coreai_torch._compression._intx import IntxTensor, UintxTensor
    from coreai_torch._compression.utils import inject_subbyte_tensors

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.tensor([[1, -2], [3, -8]], dtype=torch.int8))
            self.register_buffer("scale", torch.tensor([[0.5], [2.0]]))

        def forward(self, x):
            scale = custom_layers.constexpr_blockwise_shift_scale
            return x @ scale(self.weight, self.scale, input_dtype=torch.int4)

    model, x = Scaled(), torch.randn(3, 2)
    exported = export(model, x)
    assert inject_subbyte_tensors(exported) is exported
    assert isinstance(exported.state_dict["weight"], IntxTensor)
    program = TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()
    assert "si4" in str(program)
    assert_close(run(program, {"x": x})["y"], model(x))
    packed = UintxTensor.from_unpacked(torch.tensor([1, 2, 3], dtype=torch.uint8), 2)
    assert (packed.nbits, packed.elem.numel()) == (2, 1)


def test_palettized_vector_takes_a_table_with_more_axes():
    from coreai_torch._compression.custom_layers import PalettizeModule

    table, indices = torch.randn(1, 1, 4, 1), torch.tensor([0, 3, 1], dtype=torch.uint8)
    assert torch.equal(PalettizeModule(indices, table)(), table.flatten()[[0, 3, 1]])
    with pytest.raises(ValueError, match="has rank 4"):
        PalettizeModule(indices, torch.randn(2, 1, 4, 1))


# executorch: the partitioner looks ops up, and lowers with a lowering that calls a built-in one.


def test_resolver_is_keyed_by_names_without_the_namespace():
    from coreai_torch._aten_to_core import _aten_to_core_resolver
    from coreai_torch._custom_to_core import _custom_to_core_resolver

    for name in ("addmm.default", "add.Tensor", "getitem", "sym_size.int", "aten.add.Tensor"):
        assert name in _aten_to_core_resolver
    assert "quantize.default" in _custom_to_core_resolver
    assert "rand.default" not in _aten_to_core_resolver


def test_lowering_calls_a_builtin_one():
    from coreai_torch._aten_to_core import _aten_to_core_resolver

    converter, x = TorchConverter(), torch.randn(3)

    @converter.register_torch_lowering("aten::relu.default", allow_override=True)
    def lower(values_map, node, loc):
        return _aten_to_core_resolver["relu.default"](values_map, node, loc)

    program = converter.add_exported_program(export(nn.ReLU(), x), output_names=["y"]).to_coreai()
    assert_close(run(program, {"input": x})["y"], torch.relu(x))


def test_promoted_type():
    import coreai.authoring
    from coreai._compiler.ir import F16Type, IntegerType, Location, RankedTensorType

    from coreai_torch._utils import get_promoted_type

    with coreai.authoring.Context(), Location.unknown():
        half = RankedTensorType.get([2], F16Type.get())
        integer = RankedTensorType.get([2], IntegerType.get_signed(32))
        assert str(get_promoted_type(half, integer)) == "f16"


# Messages that callers match on.


def test_messages_contain_the_phrases_that_callers_match():
    exported = export(nn.ReLU(), torch.ones(2))
    converter = TorchConverter()
    for phrase, call in {
        "No programs to convert": converter.to_coreai,
        "namespace::op_name": lambda: converter.register_torch_lowering("relu"),
        "already registered": lambda: converter.register_torch_lowering("aten::relu.default"),
        "live inputs": lambda: converter.add_exported_program(exported, input_names=["a", "b"]),
        "live outputs": lambda: converter.add_exported_program(exported, output_names=["a", "b"]),
    }.items():
        with pytest.raises((ValueError, RuntimeError), match=phrase):
            call()


# ultralytics: never calls optimize().


class Twice(nn.Module):
    def forward(self, x):
        return (x + x).reshape(2, 3).transpose(0, 1).reshape(6) * np.float32(2)


@pytest.mark.parametrize(
    ("argument", "variable", "at_once", "saved"),
    [
        (None, None, False, True),
        (True, None, True, True),
        (False, None, False, False),
        (None, "1", True, True),
        (None, "0", False, False),
        (True, "0", True, True),
    ],
)
def test_saved_program_is_optimized(tmp_path, monkeypatch, argument, variable, at_once, saved):
    from coreai_torch.asset.mlir_module import OPTIMIZE

    monkeypatch.delenv(OPTIMIZE, raising=False)
    if variable is not None:
        monkeypatch.setenv(OPTIMIZE, variable)
    exported = export(Twice(), torch.ones(6))
    program = TorchConverter(optimize=argument).add_exported_program(exported).to_coreai()
    assert ("op_id" in _text(program)) == at_once
    program.save_asset(tmp_path / "twice.aimodel")
    assert ("op_id" in _text(program)) == saved
    if saved:
        before = _text(program)
        program.optimize()
        program.optimize()
        assert _text(program) == before


def _text(program):
    return program.mlir_module.operation.get_asm(enable_debug_info=True)


def test_optimize_variable_is_checked(monkeypatch):
    from coreai_torch.asset.mlir_module import OPTIMIZE

    monkeypatch.setenv(OPTIMIZE, "yes")
    with pytest.raises(ValueError, match="set it to 1 or 0"):
        TorchConverter()
    with pytest.raises(TypeError, match="pass True, False or None"):
        TorchConverter(optimize="yes")
