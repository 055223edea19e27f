"""Static bundles for the Neural Engine: content, numbers, checks and rejected models."""

from __future__ import annotations

import copy
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from decoders import SMALL, decoder, greedy, prompt
from lazy_import import lazy_import
from tiny_tokenizer import END, END_TURN, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.asset import reading
from coreai_torch.cli import main
from coreai_torch.errors import ConversionError, GenerationError
from coreai_torch.llm.bundle.checks import static
from coreai_torch.llm.bundle.checks.trial import StepError, Trial
from coreai_torch.llm.bundle.static import names
from coreai_torch.llm.bundle.static.blocks import Block, StaticRuntime, blocks, causal_mask

# These import transformers.
_STATIC = "coreai_torch.llm.bundle.static"
exporting = lazy_import(f"{_STATIC}.exporting")
capture = lazy_import(f"{_STATIC}.capturing", "capture")
Step = lazy_import(f"{_STATIC}.step_functions", "Step")
in_half = lazy_import(f"{_STATIC}.requirements", "in_half")
Rewritten = lazy_import(f"{_STATIC}.rewriting", "Rewritten")

CONTEXT = 512
ENDS = {"max_position_embeddings": CONTEXT, "eos_token_id": [END, END_TURN]}


def _without_constraints(tmp_path_factory):
    """Return a function that also saves the program without interleaved caches."""
    path = tmp_path_factory.mktemp("static") / "plain"
    original = exporting.constrain_to

    def constrain_to(context):
        def constrain(program):
            copy.deepcopy(program).save_asset(path / "static_llama.aimodel")
            original(context)(program)

        return constrain

    return path, constrain_to


@pytest.fixture(scope="module")
def static_bundle(tmp_path_factory):
    """Return a small Llama with its static bundle, and the same bundle for the runtime."""
    model = decoder("llama", intermediate_size=1024, **ENDS)
    path = tmp_path_factory.mktemp("static") / "static_llama"
    plain, constrain_to = _without_constraints(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "constrain_to", constrain_to)
        llm.export(model, path, tokenizer=tiny_tokenizer(), target="neural_engine")
    shutil.copy(path / "metadata.json", plain)
    return SimpleNamespace(model=model, half=in_half(model, is_own=False), path=path, plain=plain)


@pytest.fixture(scope="module")
def runtime(static_bundle):
    return StaticRuntime(static_bundle.path, "torch")


def test_metadata_of_a_static_bundle(static_bundle):
    content = json.loads((static_bundle.path / "metadata.json").read_text())
    assert content["language"]["max_context_length"] == CONTEXT
    assert content["language"]["states"] == {"key_cache": "kv_cache", "value_cache": "kv_cache"}
    assert "function_map" not in content["language"]


def test_static_bundle_passes_all_steps(static_bundle):
    report = llm.check(static_bundle.path, static_bundle.model)
    assert len(report.steps) == 10
    assert {step.status for step in report.steps} == {"ok"}, str(report)
    assert "equal transformers" in report.steps[3].detail
    assert "12 functions compute the same" in report.steps[5].detail


def test_functions_have_static_shapes_and_convolutions(static_bundle):
    functions = reading.read(static_bundle.path / "static_llama.aimodel").functions
    assert set(names.function_names(CONTEXT)) <= set(functions)
    for name in names.function_names(CONTEXT):
        ports = [*functions[name].inputs, *functions[name].outputs]
        assert reading.DYNAMIC not in [size for port in ports for size in port.type.shape]
    layers, heads = 2, 4
    ops = [op.name for op in functions["extend_256_8"].body.ops]
    assert ops.count("coreai.conv2d") == 7 * layers + 1
    assert sum("matmul" in op for op in ops) == 2 * layers * heads
    ops = [op.name for op in functions["prompt_opt_256_8"].body.ops]
    assert ops.count("coreai.conv2d") == 7 + 2  # the last layer computes keys and values only
    assert sum("matmul" in op for op in ops) == 2 * heads


def test_weights_are_stored_once(static_bundle):
    stored = (static_bundle.path / "static_llama.aimodel" / "main.mlirb").stat().st_size
    weights = sum(2 * one.numel() for one in static_bundle.half.parameters())
    assert weights < stored < 1.5 * weights


def test_caches_are_interleaved(static_bundle):
    from coreai.authoring import AIModelAsset

    text = str(AIModelAsset.load(static_bundle.path / "static_llama.aimodel").program)
    line = next(one for one in text.splitlines() if "@extend_256_8(" in one)
    cache = "IOSurface, alignments: [1x1x1x1x4096x1], interleave: [1x1x8x1x1]"
    assert line.count(cache) == 2
    assert "interleave: [8x1x1]" in line


def test_numbers_on_the_runtime(static_bundle):
    runtime = StaticRuntime(static_bundle.plain)
    tokens = prompt(70)[0]
    states = runtime.states(fill=3.0)
    rows = [runtime(tokens[:64], 64, states)]
    rows += [runtime(tokens[n : n + 1], n + 1, states) for n in range(64, 70)]
    with torch.no_grad():
        want = static_bundle.half(tokens[None]).logits[0].float()
    # The Linux runtime accumulates float16 products in 16 bits.
    torch.testing.assert_close(torch.cat(rows).float(), want, rtol=0, atol=0.03 * want.abs().max())


def test_generation_equals_transformers(static_bundle):
    tokens = prompt(9)
    got = llm.load(static_bundle.path).generate(tokens, 12)
    assert torch.equal(got, greedy(static_bundle.half, tokens, 12))


def test_static_bundle_has_no_prompt_cache(static_bundle, tmp_path):
    model = llm.load(static_bundle.path)
    with pytest.raises(GenerationError, match="a static bundle has no prompt cache"):
        model.save_prompt_cache("Hello", tmp_path / "cache.safetensors")


def test_context_is_limited(runtime):
    with pytest.raises(GenerationError, match="513 tokens exceed the context of 512"):
        runtime(torch.zeros(513), 513, runtime.states())


@pytest.mark.parametrize(
    ("start", "total", "expected"),
    [
        (0, 5, [(8, 0, 0, 5)]),
        (0, 17, [(64, 0, 0, 17)]),
        (5, 6, [(8, 0, 5, 6)]),
        (0, 130, [(64, 0, 0, 64), (64, 64, 64, 128), (8, 128, 128, 130)]),
        (6, 12, [(8, 0, 6, 8), (8, 8, 8, 12)]),
    ],
)
def test_blocks_are_aligned(start, total, expected):
    assert list(blocks(start, total)) == [Block(*one) for one in expected]


def test_mask_hides_later_keys_and_padding():
    mask = causal_mask(Block(8, 8, 9, 11), 256)[0, :, 0]
    assert mask.shape == (256, 8)
    assert (mask == 0).sum(0).tolist() == [9, 10, 11, 0, 0, 0, 0, 0]
    assert set(mask.unique().tolist()) == {0.0, -40000.0}


def _decoder(name, **options):
    if name != "qwen2":
        return decoder(name, **options)
    import transformers

    sizes = {**SMALL, **options}
    del sizes["head_dim"]
    torch.manual_seed(0)
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes)).eval()


ARCHITECTURES = [
    ("qwen2", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("qwen3", {}),
    ("mistral", {}),
    ("phi3", {}),
]


@pytest.mark.parametrize(("name", "options"), ARCHITECTURES)
def test_rewritten_decoder_computes_the_logits_of_the_model(name, options):
    model = in_half(_decoder(name, **{**ENDS, **options}), is_own=True)
    with torch.no_grad():
        step = Step(Rewritten(capture(model, 2), 256))
        tokens = prompt(16)[0]
        want = model(tokens[None]).logits[0].float()
        embedding = model.get_input_embeddings().weight
        keys, values = (torch.zeros(2, 1, 32, 1, 256, dtype=torch.float16) for _ in range(2))
        rows = []
        for start in (0, 8):
            block = Block(8, start, start, start + 8)
            rows.append(
                step(
                    embedding[tokens[start : start + 8]][None, :, None],
                    torch.arange(start, start + 8).to(torch.uint16)[None],
                    torch.tensor([start], dtype=torch.int32),
                    causal_mask(block, 256),
                    embedding[:, None],
                    keys,
                    values,
                )[0, 0]
            )
    got = torch.cat(rows).float()
    torch.testing.assert_close(got, want, rtol=0, atol=0.01 * want.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), ARCHITECTURES)
def test_architecture_passes_all_steps(name, options, tmp_path):
    model = _decoder(name, **{**ENDS, **options})
    bundle = llm.export(model, tmp_path / "b", tokenizer=tiny_tokenizer(), target="neural_engine")
    report = llm.check(bundle, model)
    assert {step.status for step in report.steps} == {"ok"}, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["4bit", "8bit"])
def test_compressed_static_bundle_passes_all_steps(compression, tmp_path):
    model = decoder("llama", **ENDS)
    options = {"tokenizer": tiny_tokenizer(), "compression": compression}
    bundle = llm.export(
        model, tmp_path / "b", target="neural_engine", max_context_length=256, **options
    )
    report = llm.check(bundle, model)
    assert {step.status for step in report.steps} == {"ok"}, str(report)


_DYNAMIC = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}


@pytest.mark.parametrize(
    ("name", "options", "arguments", "message"),
    [
        ("gemma2", {}, {}, "is a Gemma2TextScaledWordEmbedding"),
        ("gpt-oss", {}, {}, "has the argument s_aux"),
        ("deepseek-v3", {}, {}, "different keys or values"),
        ("llama", _DYNAMIC, {}, "has the type 'dynamic'"),
        ("llama", {}, {"max_context_length": 300}, "pass max_context_length=512"),
        ("llama", {"max_position_embeddings": 128}, {}, "has 128 positions"),
        ("llama", {"head_dim": 256}, {}, "512 channels or layers, more than the context of 256"),
        ("llama", {}, {"target": "tpu"}, "unknown target 'tpu'"),
        ("llama", {}, {"kv_cache": "int8"}, "static bundles cannot run an int8 cache"),
        ("llama", {}, {"kv_cache": "int3"}, "unknown kv_cache 'int3'"),
    ],
)
def test_rejected_model_raises_with_a_hint(tmp_path, name, options, arguments, message):
    model = decoder(name, **{**ENDS, "max_position_embeddings": 300, **options})
    if "max_context_length" in arguments:
        model.config.max_position_embeddings = CONTEXT
    given = {"tokenizer": tiny_tokenizer(), "target": "neural_engine", **arguments}
    with pytest.raises(ConversionError) as error:
        llm.export(model, tmp_path / "out", **given)
    assert message in str(error.value)
    assert "\n  try   " in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_experts_are_rejected(tmp_path):
    model = decoder("qwen3-moe", **ENDS)
    with pytest.raises(ConversionError, match="a static bundle cannot compute"):
        llm.export(model, tmp_path / "out", tokenizer=tiny_tokenizer(), target="neural_engine")


def test_weights_beyond_float16_are_rejected():
    model = decoder("llama", **ENDS)
    model.lm_head.weight.data[0, 0] = 1e6
    with pytest.raises(ConversionError, match="exceeds the range of float16"):
        in_half(model, is_own=True)


class _Faulty(StaticRuntime):
    """A runtime with one wrong function."""

    wrong = "none"

    def call(self, name, feeds, states):
        results = super().call(name, feeds, states)
        if name.startswith(self.wrong):
            for value in (*results.values(), *states.values()):
                value *= 1.5
        return results


@pytest.mark.parametrize(
    ("run", "wrong", "message"),
    [
        (static.prefill, "prompt_opt_256_64", "after prompt_opt"),
        (static.every_size, "extend_512_16", "extend_512_16"),
        (static.every_size, "prompt_opt_256_16", "after prompt_opt_256_16"),
        (static.aligned_blocks, "extend_256_8", "token by token"),
        (static.end_of_context, "extend_512_8", "differ from transformers"),
    ],
)
def test_faulty_function_fails_its_step(static_bundle, run, wrong, message):
    faulty = _Faulty(static_bundle.path, "torch")
    faulty.wrong = wrong
    with pytest.raises(StepError, match=message):
        run(Trial(faulty, static_bundle.model))


def test_missing_functions_fail(static_bundle, tmp_path):
    bundle = tmp_path / "bundle"
    shutil.copytree(static_bundle.path, bundle)
    path = bundle / "metadata.json"
    content = json.loads(path.read_text())
    for context, message in ((1024, "lacks the functions extend_1024"), (256, "would also choose")):
        content["language"]["max_context_length"] = context
        path.write_text(json.dumps(content))
        step = llm.check(bundle).steps[2]
        assert step.status == "failed"
        assert message in step.detail


def test_command_exports_a_static_bundle(tmp_path, capsys, monkeypatch):
    seen = {}
    monkeypatch.setattr(llm, "export", lambda *args, **options: seen.update(options) or tmp_path)
    with pytest.raises(SystemExit):
        main(["llm", "export", "model", "-o", "out", "--target", "neural_engine", "--json"])
    assert seen["target"] == "neural_engine"


def test_sizes_are_those_of_the_configuration(runtime):
    assert runtime.state_shape == (2, 1, 2 * SMALL["head_dim"], 1, CONTEXT)
    assert names.largest_context(1000) == 512
    assert names.largest_context(100) is None
    assert names.is_context(65536)
    assert not names.is_context(131072)
