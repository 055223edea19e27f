"""Compression in `llm.export`: presets, the measured mix, and YAML files."""

from __future__ import annotations

import json

import pytest
import torch
from decoders import decoder
from tiny_tokenizer import END, tiny_tokenizer
from torch import nn

from coreai_torch import llm
from coreai_torch.errors import ConversionError
from coreai_torch.llm.bundle.weight_compression import (
    EIGHT,
    FOUR,
    Spec,
    compress_decoder,
    label,
    read_recipe,
)


def _schemes(reports):
    return {row.name: row.scheme for report in reports for row in report.compressed}


def _write(tmp_path, body):
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(body))
    return path


def _weight(dtype, **granularity):
    return {"op_state_spec": {"weight": {"dtype": dtype, "granularity": granularity}}}


BLOCK = {"type": "per_block", "block_size": 32, "axis": 1}
RECIPE = {
    "quantization_config": {
        "global_config": _weight("int4", **BLOCK),
        "module_type_configs": {"torch.nn.modules.sparse.Embedding": None},
        "module_name_configs": {
            r"model\.layers\.1\..*": _weight("int8", type="per_tensor"),
            "lm_head": None,
        },
        "execution_mode": "eager",
    }
}


@pytest.mark.parametrize(("preset", "spec"), [("4bit", FOUR), ("8bit", EIGHT)])
def test_preset_compresses_all_linear_layers(preset, spec):
    model = decoder("llama")
    reports = compress_decoder(model, preset, tiny_tokenizer())
    linear = [name for name, one in model.named_modules() if isinstance(one, nn.Linear)]
    assert {f"{name}.weight" for name in linear} <= set(_schemes(reports))
    assert {scheme.partition(" ")[0] for scheme in _schemes(reports).values()} == {spec.scheme}


def test_mix_gives_sensitive_layers_eight_bits():
    model = decoder("llama", num_hidden_layers=4)
    # The other layers add nothing to the residual stream, so their rounding has no effect.
    for number in (0, 1, 3):
        layer = model.model.layers[number]
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    reports = compress_decoder(model, "mixed", tiny_tokenizer())
    names = _schemes(reports)
    wide = {name for name, scheme in names.items() if scheme.startswith("int8")}
    assert {name for name in names if ".layers.2." in name} <= wide
    assert {"model.embed_tokens.weight", "lm_head.weight"} <= wide
    assert not {name for name in wide if ".layers." in name and ".layers.2." not in name}


@pytest.mark.parametrize("name", ["qwen3-moe", "gpt-oss"])
def test_experts_are_compressed_one_by_one(name):
    model = decoder(name)
    before = {
        name: value.detach().clone() for name, value in model.named_parameters() if value.dim() == 3
    }
    assert len(before) == 4
    names = _schemes(compress_decoder(model, "4bit", tiny_tokenizer()))
    for path, want in before.items():
        assert names[path].startswith("int4")
        owner = model.get_submodule(path.rpartition(".")[0])
        got = getattr(owner, path.rpartition(".")[2])
        inputs = 1 if owner.is_transposed else 2
        blocks = want.movedim(inputs, -1).unflatten(-1, (-1, 32))
        error = (got - want).movedim(inputs, -1).unflatten(-1, (-1, 32))
        # Each block of 32 inputs of one output of one expert has its own scale.
        assert bool((error.abs().amax(-1) <= 0.35 * blocks.abs().amax(-1) + 1e-6).all())


def test_experts_of_llama4_are_compressed():
    from transformers import Llama4ForCausalLM, Llama4TextConfig

    sizes = {"hidden_size": 64, "intermediate_size": 64, "intermediate_size_mlp": 64}
    config = Llama4TextConfig(
        vocab_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=2,
        interleave_moe_layer_step=1,
        pad_token_id=None,
        **sizes,
    )
    torch.manual_seed(0)
    model = Llama4ForCausalLM(config).eval()
    for weight in model.parameters():
        nn.init.normal_(weight)  # the class leaves its experts at zero
    before = model.model.layers[0].feed_forward.experts.down_proj.detach().clone()
    report = _schemes(compress_decoder(model, "4bit", tiny_tokenizer()))
    for name in ("gate_up_proj", "down_proj"):
        assert report[f"model.layers.0.feed_forward.experts.{name}"].startswith("int4")
    after = model.model.layers[0].feed_forward.experts.down_proj
    gap = (after - before).unflatten(1, (-1, 32)).abs().amax(2)
    assert bool((gap <= 0.35 * before.unflatten(1, (-1, 32)).abs().amax(2)).all())


def test_mix_covers_experts():
    model = decoder("qwen3-moe")
    names = _schemes(compress_decoder(model, "mixed", tiny_tokenizer()))
    kinds = {scheme[:4] for name, scheme in names.items() if "experts" in name}
    assert "int4" in kinds
    assert names["lm_head.weight"].startswith("int8")


def test_recipe_prefers_names_to_types_to_the_default(tmp_path):
    plan, specs = read_recipe(_write(tmp_path, RECIPE))
    linear = nn.Linear(2, 2)
    assert plan("model.layers.0.mlp.up_proj", linear) == FOUR
    assert plan("model.layers.1.mlp.up_proj", linear) == EIGHT
    assert plan("model.embed_tokens", nn.Embedding(2, 2)) is None
    assert plan("lm_head", linear) is None
    assert set(specs) == {FOUR, EIGHT}
    names = _schemes(compress_decoder(decoder("llama"), tmp_path / "recipe.yaml", None))
    assert names["model.layers.1.mlp.up_proj.weight"].startswith("int8")
    assert names["model.layers.0.mlp.up_proj.weight"].startswith("int4")
    assert "lm_head.weight" not in names


def test_recipe_of_palettes(tmp_path):
    weight = {"n_bits": 4, "granularity": {"type": "per_grouped_channel", "group_size": 8}}
    body = {"global_config": {"op_state_spec": {"weight": weight}}}
    plan, _ = read_recipe(_write(tmp_path, {"kmeans_palettization_config": body}))
    assert plan("a", nn.Linear(2, 2)) == Spec("palettize4", 8)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "it needs exactly one of"),
        ({"quantization_config": {"other": 1}}, "unknown keys other"),
        ({"quantization_config": {"global_config": _weight("int3")}}, "dtype 'int3' is unknown"),
        (
            {"quantization_config": {"global_config": _weight("int4", type="rows")}},
            "granularity {'type': 'rows'} is unknown",
        ),
        (
            {"quantization_config": {"global_config": {"op_input_spec": {"a": 1}}}},
            "op_input_spec is set",
        ),
        (
            {"quantization_config": {}, "coreai_models": {"calibrate_activations": True}},
            "calibrate_activations is set",
        ),
    ],
)
def test_unsupported_recipe_raises(tmp_path, body, message):
    with pytest.raises(ConversionError) as error:
        read_recipe(_write(tmp_path, body))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ({"granularity": {"type": "per_channel", "axis": 1}}, "axis is 1; per_channel uses 0"),
        (
            {"granularity": {"type": "per_block", "block_size": 8, "axis": 0}},
            "axis is 0; per_block",
        ),
        ({"granularity": {"type": "per_channel", "size": 1}}, "unknown keys size of the granular"),
        ({"qscheme": "clipped"}, "qscheme 'clipped' is not 'symmetric' or 'asymmetric'"),
        ({"qformulation": "minval"}, "qformulation 'minval' is not 'zp'"),
        ({"range": [0, 1]}, "unknown keys range of the weight"),
    ],
)
def test_setting_of_a_weight_without_effect_raises(tmp_path, weight, message):
    config = {"op_state_spec": {"weight": {"dtype": "int8", **weight}}}
    with pytest.raises(ConversionError) as error:
        read_recipe(_write(tmp_path, {"quantization_config": {"global_config": config}}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "qscheme", "scheme"),
    [
        ("int8", None, "int8"),
        ("int4", "symmetric", "int4"),
        ("int4", "asymmetric", "uint4"),
        ("uint8", "symmetric", "int8"),
        ("uint8", "asymmetric", "uint8"),
    ],
)
def test_asymmetric_scheme_has_a_zero_point(tmp_path, dtype, qscheme, scheme):
    weight = {
        "dtype": dtype,
        "qscheme": qscheme,
        "granularity": {"type": "per_channel", "axis": -2},
    }
    config = {"op_state_spec": {"weight": weight}}
    plan, _ = read_recipe(_write(tmp_path, {"quantization_config": {"global_config": config}}))
    assert plan("a", nn.Linear(2, 2)) == Spec(scheme)


def test_unknown_compression_raises():
    with pytest.raises(ConversionError, match="unknown compression '3bit'"):
        compress_decoder(decoder("llama"), "3bit", None)


def test_label_is_the_preset_or_the_stem():
    assert label("none") is None
    assert label("4bit") == "4bit"
    assert label("folder/qwen_small.yaml") == "qwen_small"


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["4bit", "mixed"])
def test_compressed_bundle_conforms(tmp_path, compression):
    model = decoder("llama", max_position_embeddings=512, eos_token_id=END)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    bundle = llm.export(
        model, tmp_path / "small", tokenizer=tiny_tokenizer(), compression=compression
    )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert json.loads((bundle / "metadata.json").read_text())["compression"] == compression
    assert llm.check(bundle).ok
    (tmp_path / "text.txt").write_text("hello world " * 4)
    report = llm.evaluate(bundle, text=tmp_path / "text.txt", model=model)
    assert (
        abs(report.differences()["conversion"]["perplexity"])
        < 0.01 * (report.scores["eager"]["perplexity"])
    )
    assert report.scores["compressed"] != report.scores["eager"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3-moe", "gpt-oss"])
def test_bundle_with_compressed_experts_conforms(tmp_path, name):
    model = decoder(name, max_position_embeddings=512, eos_token_id=END)
    bundle = llm.export(model, tmp_path / "small", tokenizer=tiny_tokenizer(), compression="4bit")
    report = llm.check(bundle, model)
    assert report.ok, str(report)
    experts = sum(one.numel() for one in model.parameters() if one.dim() == 3)
    written = sum(one.stat().st_size for one in bundle.rglob("*.mlirb"))
    assert written < 4 * experts  # with all other weights and the graph
