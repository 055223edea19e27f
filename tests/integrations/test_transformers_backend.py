"""The backend `coreai` of `transformers.exporters`, on small models with random weights."""

from __future__ import annotations

import copy
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

pytest.importorskip("transformers.exporters")

import suite_judge
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.exporters import AutoExportConfig, AutoHfExporter, ExportedModel
from transformers.exporters.utils import decompose_for_generation

from coreai_torch.errors import ConversionError, NamingError, RunError
from coreai_torch.integrations.transformers import (
    CoreAIConfig,
    CoreAIExporter,
    CoreAIQuantizer,
    generate,
    register,
)
from coreai_torch.integrations.transformers.structure import named_tensors, names_of_leaves

# The exporters of transformers warn about versions of torch that they were not tested with.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

QUICK = CoreAIConfig(verify=False)
SLOW = pytest.mark.slow


def tokens(length=5):
    ids = torch.arange(length)[None] % 60 + 2
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=64, max_position_embeddings=64, **sizes, **heads)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def exported(llama):
    register()
    exporter = AutoHfExporter.from_config(CoreAIConfig())
    assert isinstance(exporter, CoreAIExporter)
    return exporter.export(llama, tokens(), CoreAIConfig())


@pytest.fixture(scope="module")
def decode(llama):
    """Return the runner of a decoding step with a static cache, the module and its inputs."""
    config = GenerationConfig(cache_implementation="static", max_cache_len=16)
    parts = decompose_for_generation(llama, tokens(), generation_config=config)
    module, inputs = parts["decode"]
    given = {n: v for n, v in inputs.items() if n not in ("use_cache", "return_dict")}
    found = CoreAIExporter().export(module, copy.deepcopy(inputs), QUICK)
    return found.runners["model"], module, given


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("bert", "forward"),
        ("vit", "forward"),
        ("detr", "forward"),
        ("clip", "forward"),
        ("qwen3_moe", "forward"),
        ("mamba", "forward"),
        ("t5", "generate"),
        ("gemma3", "generate"),
        ("whisper", "generate"),
        ("distilbert", "dynamic"),
        ("longformer_unmasked", "forward"),  # exports with the rewrites of `convert` only
        pytest.param("llava", "generate", marks=SLOW),
        pytest.param("qwen2_vl", "forward", marks=SLOW),
        pytest.param("jamba", "generate", marks=SLOW),
        pytest.param("lfm2", "generate", marks=SLOW),
        pytest.param("bart", "generate", marks=SLOW),
        pytest.param("llama", "dynamic", marks=SLOW),
    ],
)
def test_an_architecture_agrees_with_torch(name, mode):
    units = suite_judge.judged(name, mode)
    assert units
    assert [unit for unit in units if unit["verdict"] != "right"] == []


def test_results_have_the_structure_of_the_model(exported, llama):
    with torch.no_grad():
        want = llama(**tokens())
    got = exported(**tokens())
    assert type(got) is type(want)
    assert type(got.past_key_values) is type(want.past_key_values)
    suite_judge.compare(got, want)


def test_ports_have_the_names_of_the_arguments(exported):
    structure = exported.runners["model"].structure
    assert structure.inputs == ("input_ids", "attention_mask")
    assert structure.states == ()
    names = [f"past_key_values.{layer}.{kind}" for layer in (0, 1) for kind in ("keys", "values")]
    assert [one.output for one in structure.results] == ["logits", *names]


def test_arguments_may_be_in_any_order(exported):
    one, other = tokens(), tokens()
    turned = dict(reversed(list(other.items())))
    assert torch.equal(exported(**one).logits, exported(**turned).logits)


def test_arrays_give_arrays(exported):
    got = exported(**{name: value.numpy() for name, value in tokens().items()})
    assert isinstance(got.logits, np.ndarray)
    assert np.array_equal(got.logits, exported(**tokens()).logits.numpy())


def test_a_missing_argument_is_rejected(exported):
    with pytest.raises(NamingError, match="attention_mask"):
        exported(input_ids=tokens()["input_ids"])


def test_other_sizes_are_rejected(exported):
    with pytest.raises(RunError, match=r"\[1, 7\].*\[1, 5\]"):
        exported(**tokens(7))


def test_a_saved_model_is_loaded_saved_over_and_run(exported, tmp_path):
    want = exported(**tokens()).logits
    exported.save_pretrained(tmp_path)
    exported.save_pretrained(tmp_path)  # over a folder that is not empty
    loaded = ExportedModel.from_pretrained(tmp_path)
    assert torch.equal(loaded(**tokens()).logits, want)
    assert loaded.config.model_type == "llama"
    loaded.save_pretrained(tmp_path)  # over itself
    loaded.save_pretrained(tmp_path / "copy")
    again = ExportedModel.from_pretrained(tmp_path / "copy", device="cpu")
    assert torch.equal(again(**tokens()).logits, want)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "copy",
        "export.json",
        "model.aimodel",
    ]


def test_only_an_asset_is_replaced_by_one_from_disk(exported, tmp_path):
    exported.save_pretrained(tmp_path / "saved")
    asset = CoreAIExporter.load_program(tmp_path / "saved" / "model.aimodel")
    other = tmp_path / "folder.aimodel"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(ConversionError):
        CoreAIExporter.save_program(asset, other)
    assert (other / "notes.txt").read_text() == "mine"


def test_the_manifest_records_the_options(exported, tmp_path):
    exported.save_pretrained(tmp_path)
    manifest = json.loads((tmp_path / "export.json").read_text())
    metadata = manifest["components"]["model"]["metadata"]
    assert manifest["export_format"] == "coreai"
    config = AutoExportConfig.from_dict(metadata["export_config"])
    assert isinstance(config, CoreAIConfig)
    assert config.verify


def test_a_device_other_than_the_cpu_is_rejected(exported):
    with pytest.raises(RunError, match="cuda"):
        ExportedModel(exported.components, "coreai").to("cuda")


def test_a_static_cache_is_a_state(decode):
    structure = decode[0].structure
    assert structure.inputs == ("input_ids", "attention_mask", "position_ids")
    assert structure.states[:2] == ("past_key_values.0.keys", "past_key_values.0.values")
    assert len(structure.states) == 6
    assert [one.output for one in structure.results if one.output] == ["logits"]


def test_steps_update_a_static_cache_without_copies(decode):
    runner, module, inputs = decode
    given, expected = copy.deepcopy(inputs), copy.deepcopy(inputs)
    places = set()
    for _ in range(3):
        with torch.no_grad():
            want = module(**expected)
        got = runner(**given)
        suite_judge.compare(got.logits, want.logits)
        places.add(given["past_key_values"].layers[0].keys.data_ptr())
        for feed in (given, expected):
            feed["position_ids"] = feed["position_ids"] + 1
            feed["attention_mask"] = feed["attention_mask"].clone()
            feed["attention_mask"][..., feed["position_ids"].item()] = True
    suite_judge.compare(given["past_key_values"], expected["past_key_values"])
    assert got.past_key_values.layers[0].keys is given["past_key_values"].layers[0].keys
    assert len(places) == 1


def test_several_threads_use_their_own_caches(decode):
    runner, module, inputs = decode

    def call(token):
        given = copy.deepcopy(inputs)
        given["input_ids"] = torch.full_like(given["input_ids"], token)
        return runner(**given).logits

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, range(8)))
    for token, logits in enumerate(found):
        given = copy.deepcopy(inputs)
        given["input_ids"] = torch.full_like(given["input_ids"], token)
        with torch.no_grad():
            suite_judge.compare(logits, module(**given).logits)


def test_without_states_a_static_cache_is_input_and_output(llama, decode):
    _, module, inputs = decode
    config = dataclasses.replace(QUICK, states=False)
    found = CoreAIExporter().export(module, copy.deepcopy(inputs), config)
    structure = found.runners["model"].structure
    assert structure.states == ()
    assert "past_key_values.0.keys" in structure.inputs
    given = copy.deepcopy(inputs)
    before = given["past_key_values"].layers[0].keys.clone()
    got = found(**given)
    with torch.no_grad():
        suite_judge.compare(got, module(**copy.deepcopy(inputs)))
    assert torch.equal(given["past_key_values"].layers[0].keys, before)


class Mixed(torch.nn.Module):
    """Returns numbers, texts, None, an argument, and one tensor twice."""

    config = None

    def forward(self, x, scale, options):
        y = x * scale + options["shift"]
        return {"y": y, "again": y, "none": None, "n": 3, "text": "ok", "x": x, "list": [y + 1]}


def test_constants_are_kept_out_of_the_program():
    given = {"x": torch.randn(3), "scale": 2.0, "options": {"shift": torch.randn(3)}}
    found = CoreAIExporter().export(Mixed().eval(), copy.deepcopy(given), CoreAIConfig())
    got, want = found(**given), Mixed()(**given)
    assert list(got) == list(want)
    assert (got["none"], got["n"], got["text"]) == (None, 3, "ok")
    assert got["again"] is got["y"]
    assert got["x"] is given["x"]
    suite_judge.compare(got, want)
    structure = found.runners["model"].structure
    assert structure.inputs == ("x", "options.shift")
    assert [one.output for one in structure.results if one.output] == ["y", "list.0"]
    with pytest.raises(RunError, match="scale"):
        found(**{**given, "scale": 3.0})


def test_compressed_and_half_precision_parts_are_verified(llama):
    config = CoreAIConfig(precision="float16", compression="int8", recognize=True)
    found = CoreAIExporter().export(llama, tokens(), config)
    with torch.no_grad():
        want = llama(**tokens()).logits
    got = found(**tokens()).logits
    assert got.dtype == want.dtype
    assert (got - want).abs().max() < 0.02 * want.abs().max()
    assert not torch.equal(got, want)


def test_our_quantizer_calibrates_each_part(llama):
    quantizer = CoreAIQuantizer("int4", [tokens()], method="gptq", skip="lm_head")
    config = dataclasses.replace(QUICK, quantizer=quantizer)
    found = CoreAIExporter().export_for_generation(llama, tokens(), config)
    for part in found.components.values():
        assert "blockwise_shift_scale" in str(part.program)
    assert not any("weight_data" in name for name, _ in llama.named_buffers())  # a copy changed
    both = dataclasses.replace(config, compression="int8")
    with pytest.raises(ConversionError, match="quantizer"):
        CoreAIExporter().export(llama, tokens(), both)


@pytest.mark.slow
def test_quantizers_of_the_graph_are_applied(llama):
    x86 = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    from transformers.exporters import PT2EQuantizer

    scheme = x86.get_default_x86_inductor_quantization_config()
    quantizer = PT2EQuantizer(x86.X86InductorQuantizer().set_global(scheme), [tokens()])
    found = CoreAIExporter().export(llama, tokens(), CoreAIConfig(quantizer=quantizer))
    assert "coreai.quantize" in str(found.program)
    assert found.program.verdict


def test_configs_may_differ_by_component(llama):
    configs = {"prefill": QUICK, "decode": dataclasses.replace(QUICK, recognize=True)}
    found = CoreAIExporter().export_for_generation(llama, tokens(), configs)
    assert list(found.components) == ["prefill", "decode"]
    recognized = [part.metadata.export_config["recognize"] for part in found.components.values()]
    assert recognized == [False, True]


def static(length):
    ends = {"eos_token_id": None, "pad_token_id": 0, "do_sample": False}
    return GenerationConfig(cache_implementation="static", max_cache_len=length, **ends)


def test_generate_needs_no_model_for_a_decoder(llama, tmp_path):
    config = static(16)
    config.max_new_tokens = 6
    want = llama.generate(**tokens(), generation_config=config)
    found = CoreAIExporter().export_for_generation(llama, tokens(), QUICK, generation_config=config)
    found.save_pretrained(tmp_path)
    loaded = ExportedModel.from_pretrained(tmp_path)
    assert generate(loaded, **tokens()).equal(want)
    with pytest.raises(RunError, match=r"\[1, 7\].*\[1, 5\]"):
        generate(loaded, **tokens(7))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "whisper", "t5"])
def test_generate_combines_the_parts_and_the_model(name):
    import zoo
    from zoo.judge import _make_inputs

    torch.manual_seed(0)
    row = zoo.ROWS[name]
    model = row.build().eval()
    model.config.get_text_config().use_cache = model.generation_config.use_cache = True
    given = _make_inputs(row.inputs, torch.float32)
    given.pop("decoder_input_ids", None)
    config = static(40)
    config.max_new_tokens, config.use_cache = 6, True
    config.decoder_start_token_id = 1
    want = model.generate(**given, generation_config=config)
    found = CoreAIExporter().export_for_generation(model, given, QUICK, generation_config=config)
    assert generate(found, model, **given).equal(want)


def test_parts_without_embeddings_need_the_model(exported):
    part = exported.components["model"]
    found = ExportedModel({"language_model": part, "decode": part}, "coreai", exported.config)
    with pytest.raises(RunError, match="language_model"):
        generate(found, **tokens())


def test_names_of_a_nested_value():
    value = {"a": [torch.zeros(1), 2, {"b": torch.ones(1)}], "c": None}
    assert list(named_tensors(value)) == ["a.0", "a.2.b"]
    assert names_of_leaves(value) == ["a.0", "", "a.2.b", ""]
