"""Export, decomposition, conversion and saving of kernels."""

import re
import tempfile
from pathlib import Path

import pytest
import torch
from coreai.authoring import AIModelAsset
from torch import nn

from coreai_torch import (
    ExternalizeSpec,
    MetalParameter,
    TorchConverter,
    TorchMetalKernel,
    get_decomp_table,
)

ID = MetalParameter("id", "uint", "thread_position_in_grid")


def decomposed(model, *args, **options):
    program = torch.export.export(model.eval(), args, **options)
    return program.run_decompositions(get_decomp_table())


def converted(program, *kernels, **options):
    """Convert and optimize, which also runs the checks of saving."""
    converter = TorchConverter().register_custom_kernels(list(kernels))
    result = converter.add_exported_program(program, **options).to_coreai()
    result.optimize()
    with tempfile.TemporaryDirectory() as folder:
        result.save_asset(Path(folder) / "kernels.aimodel")
    return result


def sources(program):
    """Return the sources of the kernel ops by the name of their entry point."""
    pattern = r'kernel_name = "(\w+)", kernel_source = "((?:[^"\\]|\\.)*)"'
    found = re.findall(pattern, str(program))
    return {name: source.replace("\\0A", "\n").replace("\\22", '"') for name, source in found}


def line(x, grid=None):
    return {
        "threads_per_grid": grid or (x.shape[0], 1, 1),
        "threads_per_thread_group": (32, 1, 1),
        "result_shapes": [[x.shape[0]]],
    }


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


RELU_SRC = "TYPE v = x[id]; // the thread's own\nout[id] = positive(v); // done"
RELU_HELPERS = "TYPE positive(TYPE v) { return v > TYPE(0) ? v : TYPE(0); }"
RELU = TorchMetalKernel(
    "converted_relu",
    ["x"],
    ["out"],
    RELU_SRC,
    relu,
    [ID],
    helper_src=RELU_HELPERS,
    template_dtypes={"x": "TYPE"},
)


def copy(x: torch.Tensor) -> torch.Tensor:
    return x


COPY = TorchMetalKernel(
    "converted_copy",
    ["x"],
    ["out"],
    RELU_SRC,
    copy,
    [ID],
    helper_src=RELU_HELPERS,
    template_dtypes={"x": "TYPE"},
)


class Copy(nn.Module):
    def forward(self, x):
        return COPY(x, **line(x))


class Relu(nn.Module):
    def forward(self, x):
        return RELU(x, **line(x))


@pytest.mark.parametrize(
    ("dtype", "metal"),
    [
        (torch.float32, "float"),
        (torch.float16, "half"),
        (torch.bfloat16, "bfloat"),
        (torch.int32, "int"),
        (torch.int64, "int"),
        (torch.int16, "int16_t"),
        (torch.int8, "int8_t"),
        (torch.uint8, "uint8_t"),
        (torch.uint16, "uint16_t"),
        (torch.uint32, "uint"),
        (torch.bool, "uint8_t"),
    ],
)
def test_signature_and_template_follow_the_dtype(dtype, metal):
    program = converted(decomposed(Copy(), torch.ones(8, dtype=dtype)), COPY)
    (source,) = sources(program).values()
    for name in ("x", "out"):
        assert f"tensor<device {metal}, metal::dextents<int, 1>, tensor_handle> {name}" in source
    assert f"{metal} v = x[id]; // the thread's own\nout[id] = positive(v); // done\n" in source
    assert f"{metal} positive({metal} v)" in source


def test_comment_at_the_end_does_not_hide_the_closing_brace():
    (source,) = sources(converted(decomposed(Relu(), torch.ones(8)), RELU)).values()
    assert re.search(r"// done\n\s*\}$", source)


@pytest.mark.parametrize("strict", [False, True])
def test_dynamic_grid_and_result(strict):
    shapes = ({0: torch.export.Dim("n", min=2, max=4096)},)
    exported = decomposed(Relu(), torch.ones(8), dynamic_shapes=shapes, strict=strict)
    x = torch.linspace(-1, 1, 33)
    assert torch.equal(exported.module()(x), x.relu())
    program = converted(exported, RELU)
    text = str(program)
    assert re.search(r"coreai.metal4_kernel.*tensor<\?xf32", text)
    assert "get_shape" in text


def frozen(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Frozen(nn.Module):
    kernel = TorchMetalKernel("frozen", ["x"], ["out"], "out[id] = x[id] * 2;", frozen, [ID])

    def forward(self, x):
        return self.kernel(x, **{**line(x), "result_shapes": [[8]]})


def test_static_result_shape_with_dynamic_input_raises():
    with pytest.raises(ValueError, match=r"'frozen': result_shapes has \[8\] for 'out'"):
        decomposed(Frozen(), torch.ones(8), dynamic_shapes=({0: torch.export.Dim("n")},))


def test_unregistered_kernel_raises_with_a_hint():
    program = decomposed(Relu(), torch.ones(8))
    converter = TorchConverter().add_exported_program(program)
    with pytest.raises(ValueError, match="no lowering for coreai_kernels") as caught:
        converter.to_coreai()
    assert "register_custom_kernels([...]) with the Metal kernel 'converted_relu'" in str(
        caught.value
    )


def test_only_kernels_can_be_registered():
    with pytest.raises(ValueError, match="not 'relu' \\(str\\)"):
        TorchConverter().register_custom_kernels(["relu"])


def test_kernel_name_in_op_and_repr():
    program = decomposed(Relu(), torch.ones(8))
    assert "converted_relu" in [node.name for node in program.graph.nodes]
    assert 'coreai.name = "converted_relu"' in str(converted(program, RELU))


def split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.relu(), (x > 0).to(torch.uint8)


SPLIT = TorchMetalKernel(
    "converted_split",
    ["x"],
    ["value", "mask"],
    "value[id] = max(x[id], 0.0f); mask[id] = x[id] > 0;",
    split,
    [ID],
)


class Several(nn.Module):
    """One kernel used with two ranks and dtypes, and one kernel with two results."""

    def forward(self, x):
        value, mask = SPLIT(x, **{**line(x), "result_shapes": [[x.shape[0]]] * 2})
        narrow = RELU((value - 1).to(torch.float16), **line(x))
        wide = RELU(x, **line(x))
        return narrow, wide, mask


def test_several_kernels_dtypes_and_results_in_one_program():
    program = converted(decomposed(Several(), torch.ones(8)), RELU, SPLIT)
    found = sources(program)
    assert len(found) == 3
    assert sorted(name.rsplit("_", 1)[0] for name in found) == [
        "converted_relu",
        "converted_relu",
        "converted_split",
    ]
    assert all(f"[[kernel]] void {name}(" in source for name, source in found.items())


def shared(name, src):
    return TorchMetalKernel(
        name, ["x"], ["out"], src, relu, [ID], helper_src="float clip(float v) { return v; }"
    )


FIRST = shared("converted_first", "out[id] = clip(x[id]);")
SECOND = shared("converted_second", "out[id] = clip(x[id]) + 0;")


class SharesHelpers(nn.Module):
    def forward(self, x):
        return FIRST(x, **line(x)) + SECOND(x, **line(x))


def test_shared_helpers_are_guarded_by_their_content():
    found = sources(converted(decomposed(SharesHelpers(), torch.ones(8)), FIRST, SECOND))
    guards = {re.search(r"#ifndef (\w+)\n#define \1\n", source)[1] for source in found.values()}
    assert len(found) == 2
    assert len(guards) == 1
    assert all(source.count("float clip(") == 1 for source in found.values())


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def same_name(src, torch_defn):
    return TorchMetalKernel("converted_twin", ["x"], ["out"], src, torch_defn, [ID])


TWINS = same_name("out[id] = max(x[id], 0.0f);", relu), same_name("out[id] = x[id] * 2;", double)


class Twins(nn.Module):
    def forward(self, x):
        return TWINS[0](x, **line(x)) + TWINS[1](x, **line(x))


def test_two_kernels_with_one_name_keep_their_sources_and_references():
    x = torch.linspace(-1, 1, 8)
    assert torch.equal(Twins()(x), x.relu() + x * 2)
    found = sources(converted(decomposed(Twins(), x), *TWINS))
    assert len(found) == 2
    assert len(set(found)) == 2


def scaled(x: torch.Tensor, n: int, scale: float, flip: bool) -> torch.Tensor:
    return (-x if flip else x) * scale + n


SCALED = TorchMetalKernel(
    "converted_scaled",
    ["x", "n", "scale", "flip"],
    ["out"],
    "out[id] = (flip ? -x[id] : x[id]) * scale + n;",
    scaled,
    [ID],
)


class Scaled(nn.Module):
    def forward(self, x):
        return SCALED(x, x.shape[0], x.shape[0] * 0.5, True, **line(x))


@pytest.mark.parametrize("dynamic", [None, ({0: torch.export.Dim("n")},)])
def test_numbers_are_passed_by_value(dynamic):
    exported = decomposed(Scaled(), torch.ones(8), dynamic_shapes=dynamic)
    assert torch.equal(exported.module()(torch.ones(8)), torch.full((8,), 4.0))
    program = converted(exported, SCALED)
    (source,) = sources(program).values()
    for metal, name in (("int", "n"), ("float", "scale"), ("bool", "flip")):
        assert f"constant {metal}& {name} [[buffer(" in source


def scalar_tensor(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale


SCALAR = TorchMetalKernel(
    "converted_scalar", ["x", "scale"], ["out"], "out[id] = x[id] * scale;", scalar_tensor, [ID]
)


class Scalar(nn.Module):
    def forward(self, x):
        return SCALAR(x, x.sum(), **line(x))


def test_rank_0_tensor_is_passed_by_value():
    (source,) = sources(converted(decomposed(Scalar(), torch.ones(8)), SCALAR)).values()
    assert "constant float& scale [[buffer(1)]]" in source


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Relu()

    def forward(self, x):
        return self.inner(x * 2) + 1


def test_kernel_inside_externalized_module():
    converter = TorchConverter().register_custom_kernels([RELU])
    converter.add_pytorch_module(
        Outer(),
        lambda m: decomposed(m, torch.ones(8)),
        externalize_modules=[ExternalizeSpec(Relu, "my_relu")],
    )
    program = converter.to_coreai()
    program.optimize()
    text = str(program)
    graph = text[text.index('composite_declaration<"my_relu"') :]
    assert "metal4_kernel" in graph
    assert "coreai.invoke" in text


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, 8))

    def forward(self, x):
        return SCALAR(x * self.weight, self.weight[3], **line(x)) + RELU(self.weight, **line(x))


def test_weights_can_be_operands():
    program = converted(decomposed(Weighted(), torch.ones(8)), SCALAR, RELU)
    assert len(sources(program)) == 2


def test_conversion_is_deterministic_and_the_asset_loads(tmp_path):
    saved = []
    for run in range(2):
        program = converted(decomposed(Several(), torch.ones(8)), RELU, SPLIT)
        program.optimize()
        path = tmp_path / f"{run}.aimodel"
        program.save_asset(path)
        saved.append((path / "main.mlirb").read_bytes())
    assert saved[0] == saved[1]
    asset = AIModelAsset.load(path)
    assert "metal" in str(asset.summary()).lower()
    assert len(sources(asset.program)) == 3


def test_exported_program_with_kernels_saves_and_loads(tmp_path):
    path = tmp_path / "program.pt2"
    torch.export.save(decomposed(Several(), torch.ones(8)), path)
    loaded = torch.export.load(path)
    assert len(sources(converted(loaded, RELU, SPLIT))) == 3


class Empty(nn.Module):
    def forward(self, x):
        return RELU(x[8:], **line(x)) if x.shape[0] > 8 else RELU(x[:0], **line(x[:0], (1, 1, 1)))


def test_zero_size_result_needs_no_kernel():
    program = converted(decomposed(Empty(), torch.ones(8)), RELU)
    assert sources(program) == {}
