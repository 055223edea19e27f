"""Schemes per layer, YAML files, sparse and quantized weights, and pickled models."""

import copy
import json

import pytest
import torch
from conversion import checked, close, saved_bytes
from torch import nn

import coreai_torch
from coreai_torch import compress
from coreai_torch.compression.recipe import read_recipe
from coreai_torch.compression.specs import Spec, to_spec
from coreai_torch.errors import ConversionError

WIDE = 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(WIDE, WIDE)
        self.mlp = nn.Sequential(nn.Linear(WIDE, 2 * WIDE), nn.ReLU(), nn.Linear(2 * WIDE, WIDE))

    def forward(self, x):
        return x + self.mlp(self.attention(x))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.lm_head = nn.Linear(WIDE, 32)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def x():
    return torch.randn(3, WIDE, generator=torch.Generator().manual_seed(1))


def schemes(report):
    return {row.name: row.scheme for row in report.rows}


def check_packed(model, report):
    """Convert, compare with compressed eager, and check the bytes of the file."""
    program = checked(model, x())
    biases = sum(4 * p.numel() for p in model.parameters() if p.dim() == 1)
    assert report.bytes <= saved_bytes(program) - biases < report.bytes + 2_000 * len(report.rows)


def test_first_matching_pattern_decides():
    model = Stack()
    patterns = {"layers.1.mlp.0": None, "layers.*.mlp": "int4/32", "lm_head": "int8"}
    report = compress(model, patterns)
    assert schemes(report) == {
        "layers.0.attention.weight": None,
        "layers.0.mlp.0.weight": "int4",
        "layers.0.mlp.2.weight": "int4",
        "layers.1.attention.weight": None,
        "layers.1.mlp.0.weight": None,
        "layers.1.mlp.2.weight": "int4",
        "lm_head.weight": "int8",
    }
    assert report["layers.1.mlp.0.weight"].why == "'layers.1.mlp.0' has no scheme"
    assert report["layers.0.attention.weight"].why == "no pattern matches"
    assert report["layers.0.mlp.0.weight"].bits == 4 + 32 / 32
    check_packed(model, report)


def test_keys_may_be_layer_types():
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64))
    assert schemes(compress(model, {nn.Embedding: "int8", "1": "int4"})) == {
        "0.weight": "int8",
        "1.weight": "int4",
    }


def test_only_selects_layers():
    report = compress(Stack(), "int8", only=["layers.*.attention", "lm_head"], skip="layers.0")
    assert [row.name for row in report.compressed] == [
        "layers.1.attention.weight",
        "lm_head.weight",
    ]
    assert report["layers.1.mlp.0.weight"].why == "not in only"


def test_tied_weight_takes_the_scheme_of_any_user():
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64, bias=False))
    model[1].weight = model[0].weight
    assert schemes(compress(model, {"1": "int8"})) == {"0.weight": "int8", "1.weight": "int8"}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ({"scheme": {"layers.*.mpl": "int4"}}, "layers.*.mlp"),
        ({"scheme": {"lm_haed": "int4"}}, "lm_head"),
        ({"scheme": "int8", "only": "layers.0.atention"}, "layers.0.attention"),
        ({"scheme": "int8", "skip": "lm-head"}, "lm_head"),
    ],
)
def test_unknown_pattern_names_the_nearest(call, name):
    with pytest.raises(ConversionError, match="matches no layer and no weight") as error:
        compress(Stack(), **call)
    assert f"'{name}'" in str(error.value)


@pytest.mark.parametrize("text", ["int4/x", "int99", "sparse4:2", "sparse50+uint4", "sparse50/8"])
def test_unknown_scheme_raises(text):
    with pytest.raises(ConversionError):
        to_spec(text)
    assert str(Spec("int4", 32)) == "int4/32"


def _weight(**more):
    return {"op_state_spec": {"weight": more}}


def test_yaml_file_gives_schemes(tmp_path):
    path = tmp_path / "recipe.yaml"
    block = {"type": "per_block", "block_size": 32, "axis": 1}
    # The form that coreai-opt 0.3.0 writes: null entries, and dtypes with torch's prefix.
    default = _weight(dtype="torch.int4", qscheme="symmetric", granularity=block)
    default |= {"op_input_spec": {"*": None}, "op_output_spec": {"*": None}}
    body = {
        "global_config": default,
        "module_type_configs": {},
        "module_name_configs": {
            "lm_head": _weight(dtype="int8"),
            r"layers\.\d\.attention": None,
        },
        "preserved_attributes": None,
        "execution_mode": "eager",
    }
    path.write_text(json.dumps({"quantization_config": body}))
    found = schemes(compress(Stack(), path))
    assert found["lm_head.weight"] == "int8"
    assert found["layers.0.attention.weight"] is None
    assert found["layers.1.mlp.2.weight"] == "int4"
    path.write_text(
        json.dumps({"magnitude_pruning_config": {"global_config": _weight(target_sparsity=0.75)}})
    )
    assert set(schemes(compress(Stack(), str(path))).values()) == {"sparse75"}
    with pytest.raises(ConversionError, match="does not exist"):
        compress(Stack(), "absent.yaml")


def _activations_recipe(path, spec, **more):
    around = {"*": spec}
    default = _weight(dtype="int8") | {"op_input_spec": around, "op_output_spec": around}
    body = {"global_config": default, "module_name_configs": {"lm_head": _weight(dtype="int4")}}
    path.write_text(json.dumps({"quantization_config": body, **more}))
    return path


@pytest.mark.parametrize("calibrated", [True, False])
def test_yaml_file_rounds_inputs_of_layers(tmp_path, calibrated):
    recipe = _activations_recipe(tmp_path / "recipe.yaml", {"dtype": "torch.int8"})
    x = torch.randn(4, 64)
    model = Stack()
    report = compress(model, recipe, calibration=[x] if calibrated else None)
    assert report["layers.0.attention.weight"].inputs == "int8"
    assert report["lm_head.weight"].inputs is None
    program = coreai_torch.convert(model, (x,))
    assert str(program).count("= coreai.quantize ") == 6


def test_yaml_file_with_unsupported_activations_raises(tmp_path):
    path = tmp_path / "recipe.yaml"
    wrong = {
        "dtype 'int4'": {"dtype": "int4"},
        "granularity": {"dtype": "int8", "granularity": {"type": "per_channel", "axis": 0}},
        "contains 'int8'": "int8",
    }
    for problem, spec in wrong.items():
        with pytest.raises(ConversionError, match=problem):
            compress(Stack(), _activations_recipe(path, spec))
    only_outputs = _weight(dtype="int8") | {"op_output_spec": {"*": {"dtype": "int8"}}}
    path.write_text(json.dumps({"quantization_config": {"global_config": only_outputs}}))
    with pytest.raises(ConversionError, match="op_input_spec is not"):
        compress(Stack(), path)
    only_inputs = {"op_input_spec": {"*": {"dtype": "int8"}}}
    path.write_text(json.dumps({"quantization_config": {"global_config": only_inputs}}))
    with pytest.raises(ConversionError, match="weight is unchanged"):
        compress(Stack(), path)


def test_yaml_file_that_calibrates_activations_needs_data(tmp_path):
    more = {"coreai_models": {"calibrate_activations": True}}
    recipe = _activations_recipe(tmp_path / "recipe.yaml", {"dtype": "int8"}, **more)
    with pytest.raises(ConversionError, match="needs calibration data"):
        compress(Stack(), recipe)
    assert compress(Stack(), recipe, calibration=[torch.randn(4, 64)]).compressed
    with pytest.raises(ConversionError, match="activations are not compressed"):
        read_recipe(recipe)


# Sparse and quantized, n:m -----------------------------------------------------------------------

COMBINED = {
    "sparse2:4": 17.1,
    "sparse1:4+int8": 3.5,
    "sparse2:4+int4": 3.6,
    "sparse50+int8": 5.6,
    "sparse75+int3": 2.5,
    "sparse2:4+palettize4": 3.2,
    "sparse50+int4/32": 4.1,
}
ALWAYS = ("sparse2:4", "sparse2:4+int4")


@pytest.mark.parametrize(
    "scheme",
    [s if s in ALWAYS else pytest.param(s, marks=pytest.mark.slow, id=s) for s in COMBINED],
)
def test_sparse_and_quantized_weights_convert(scheme):
    model = Stack()
    report = compress(model, scheme)
    assert len(report.compressed) == 7
    assert all(row.bits <= COMBINED[scheme] + 0.6 for row in report.rows)
    check_packed(model, report)


@pytest.mark.parametrize("scheme", ["sparse2:4", "sparse2:4+int4", "sparse1:4+int8/16"])
def test_each_group_keeps_its_largest_elements(scheme):
    plain = nn.Linear(32, 64)
    model = copy.deepcopy(plain)
    compress(model, scheme)
    kept = int(scheme[6])
    groups, original = model.weight.reshape(64, 8, 4), plain.weight.reshape(64, 8, 4)
    assert int((groups != 0).sum(-1).max()) <= kept
    smallest = original.abs().topk(kept).values[..., -1:]
    assert bool((groups[original.abs() < smallest] == 0).all())


def test_groups_of_a_convolution_are_inputs():
    conv = nn.Conv2d(8, 16, 3)
    compress(conv, "sparse2:4+int8")
    assert int((conv.weight.reshape(16, 2, 4, 9) != 0).sum(2).max()) == 2


def test_sparse_integers_have_a_scale_per_output():
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    model.weight.data *= torch.logspace(-3, 3, 64)[:, None]
    plain = model.weight.detach().clone()
    compress(model, "sparse50+int8")
    kept = plain * (model.weight != 0)
    error = (model.weight - kept).norm(dim=1)[kept.any(1)] / kept.norm(dim=1)[kept.any(1)]
    assert float(error.max()) < 0.02


def test_indivisible_groups_are_left_alone():
    model = nn.Sequential(nn.Linear(30, 64), nn.Linear(64, 64))
    why = compress(model, "sparse2:4")["0.weight"].why
    assert why == "indivisible: 30 on axis 1 in groups of 4"


# Pickles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme", ["int4/32", "fp4", "fp8", "palettize4", "sparse50+palettize4", "sparse2:4+int4"]
)
def test_saved_model_loads(tmp_path, scheme):
    model = Stack()
    compress(model, scheme)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(loaded(x()), model(x()))
    assert loaded.state_dict().keys() == model.state_dict().keys()
    twice = copy.deepcopy(loaded)
    torch.save(twice, tmp_path / "twice.pt")
    assert torch.equal(torch.load(tmp_path / "twice.pt", weights_only=False)(x()), model(x()))


def test_saved_model_keeps_ties_and_converts(tmp_path):
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64, bias=False))
    model[1].weight = model[0].weight
    compress(model, "int8")
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert loaded[0].parametrizations.weight[0] is loaded[1].parametrizations.weight[0]
    program = checked(loaded, torch.tensor([[1, 2]]))
    assert saved_bytes(program) < 64 * 32 + 64 * 4 + 4_000


def test_state_dict_loads_into_a_compressed_model(tmp_path):
    model, other = Stack(), Stack()
    compress(model, "int4/32")
    for p in other.parameters():
        p.data.mul_(0.5)
    compress(other, "int4/32")
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    close(other(x()), model(x()))


def test_foreign_parametrization_is_not_pickled(tmp_path):
    model = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
    wrapped = nn.Sequential(model, nn.Linear(64, 64))
    compress(wrapped, "int8")
    with pytest.raises(RuntimeError, match="Serialization of parametrized modules"):
        torch.save(wrapped, tmp_path / "model.pt")
