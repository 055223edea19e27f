"""Bundles of vision-language models equal the models that they were made from."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from decoders import decoder
from tiny_tokenizer import END_TURN, tiny_tokenizer
from vision_models import IMAGE, VISION_MODELS, vision_model

from coreai_torch import llm
from coreai_torch.cli import main
from coreai_torch.errors import ConversionError, GenerationError
from coreai_torch.llm.bundle.opening import open_bundle
from coreai_torch.llm.bundle.reference import difference
from coreai_torch.llm.bundle.runtime import Sequence
from coreai_torch.llm.bundle.vision.families import family_of
from coreai_torch.llm.bundle.vision.family import Step
from coreai_torch.llm.bundle.vision.images import to_pixels
from coreai_torch.llm.bundle.vision.prompts import ImagePrompt

SIZE, TOKENS, CONTEXT = 32, 16, 128
PLACEHOLDER = "<|im_start|>"
HALF = 4e-3  # embeddings and image features are rounded to float16


def _export(name, folder):
    model = vision_model(name)
    size = None if name == "gemma3" else SIZE
    llm.export(
        model, folder, tokenizer=tiny_tokenizer(), image_size=size, max_context_length=CONTEXT
    )
    return SimpleNamespace(model=model, path=folder, family=family_of(model, size))


@pytest.fixture(scope="session", params=["gemma3", "qwen2_5_vl"])
def bundle(request, tmp_path_factory):
    """Return a small vision-language model with its bundle."""
    return _export(request.param, tmp_path_factory.mktemp("vision") / request.param)


@pytest.fixture(scope="session")
def loaded(bundle):
    """Return the loaded bundle."""
    return llm.load(bundle.path)


def _pixels(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, SIZE, SIZE, generator=generator)


def _ids(images):
    text = "".join(f"ab{PLACEHOLDER * TOKENS}c" for _ in range(images))
    return torch.tensor([tiny_tokenizer()(text + "de").input_ids])


def test_bundle_has_three_assets_and_sizes_of_images(bundle):
    content = json.loads((bundle.path / "metadata.json").read_text())
    assert content["kind"] == "vlm"
    assert content["assets"] == {
        "main": f"{bundle.path.name}.aimodel",
        "embedding": "embed.aimodel",
        "vision": "vision.aimodel",
    }
    assert all((bundle.path / name).is_dir() for name in content["assets"].values())
    sizes = [content["vision"][f"image_{name}"] for name in ("size", "token_count", "token_id")]
    assert sizes == [SIZE, TOKENS, IMAGE]
    assert content["vision"]["patch_size"] == 4
    assert content["language"]["states"] == {"k_cache": "kv_cache", "v_cache": "kv_cache"}


def test_bundle_passes_all_steps(bundle):
    report = llm.check(bundle.path, bundle.model)
    assert len(report.steps) == 12
    assert {step.status for step in report.steps} == {"ok"}, str(report)


@pytest.mark.parametrize("images", [0, 2])
def test_logits_equal_the_model(bundle, loaded, images):
    ids, pixels = _ids(images), _pixels(images)
    got = loaded.logits(ids[0], images=list(pixels))
    inputs = bundle.family.eager_inputs(ids, pixels) if images else {"input_ids": ids}
    with torch.no_grad():
        want = bundle.model(**inputs).logits[0]
    assert difference(got, want) < HALF


def test_logits_equal_those_of_the_program_as_written(bundle, loaded):
    found = []
    for runtime in (open_bundle(bundle.path), loaded._runtime):
        image = runtime.add_image(_pixels(1))
        sequence = Sequence(runtime)
        pieces = [torch.tensor([5, 6, *image, 7]), torch.tensor([8]), torch.tensor([9])]
        found.append(torch.cat([sequence.append(piece) for piece in pieces]))
    assert torch.equal(*found)


def test_generated_tokens_equal_the_model(bundle, loaded):
    ids, pixels = _ids(1), _pixels(1, seed=1)
    got = loaded.generate(ids, 8, images=list(pixels), temperature=0)
    inputs = bundle.family.eager_inputs(ids, pixels)
    want = bundle.model.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert torch.equal(got, want)
    again = loaded.generate(ids, 8, images=list(pixels), temperature=0)
    assert torch.equal(got, again)
    assert loaded.reused_tokens == ids.shape[1] - 1


def test_text_prompt_and_conversation_with_image(loaded):
    pixels = _pixels(1, seed=2)[0]
    text = loaded.generate(f"ab{PLACEHOLDER}cde", 4, images=[pixels], temperature=0)
    tokens = loaded.generate(_ids(1), 4, images=[pixels], temperature=0)
    assert loaded.tokenizer.decode(tokens[0, -4:], skip_special_tokens=True) == text
    loaded.tokenizer.chat_template = (
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}"
        f"{PLACEHOLDER}"
        "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
    )
    content = [{"type": "image", "image": pixels}, {"type": "text", "text": "what?"}]
    answer = loaded.chat([{"role": "user", "content": content}], 4, temperature=0)
    assert answer == loaded.generate(f"{PLACEHOLDER}what?", 4, images=[pixels], temperature=0)


def test_other_image_gives_other_logits(loaded):
    ids = _ids(1)[0]
    first, second = (loaded.logits(ids, images=[one]) for one in _pixels(2, seed=3))
    assert torch.equal(first[:2], second[:2])
    assert not torch.equal(first[-1], second[-1])


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("no placeholder", {"images": 1}, "contains '<|im_start|>' 0 times, but 1 images"),
        ([1, 2, IMAGE, 3], {"images": 1}, "1 image tokens, but 1 images need 16"),
        (["a", "b"], {"images": 1}, "images belong to one prompt"),
        (PLACEHOLDER, {"images": 1, "prompt_cache": "x"}, "does not store images"),
    ],
)
def test_wrong_prompts_are_rejected(loaded, prompt, options, message):
    options = {**options, "images": list(_pixels(options["images"]))}
    with pytest.raises(GenerationError) as raised:
        loaded.generate(prompt, 2, **options)
    assert message in str(raised.value)


def test_image_of_other_shape_is_rejected(loaded):
    with pytest.raises(GenerationError, match="has the shape"):
        loaded.generate(PLACEHOLDER, 2, images=[torch.zeros(3, 8, 8)])


def test_text_bundle_rejects_images(llama_bundle):
    with pytest.raises(GenerationError, match="does not support images"):
        llm.load(llama_bundle.path).generate("a", 2, images=[_pixels(1)[0]])


def test_command_generates_text_for_an_image(bundle, tmp_path, capsys):
    from PIL import Image

    values = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(values).save(tmp_path / "image.png")
    prompt = f"{PLACEHOLDER} what?"
    arguments = ["llm", "generate", str(bundle.path), prompt, "-n", "8", "--temperature", "0"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--image", str(tmp_path / "image.png"), "--json"])
    assert ended.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    want = llm.load(bundle.path).generate(prompt, 8, images=[values], temperature=0)
    assert printed["text"] == want


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_positions_equal_the_model(name):
    family = family_of(vision_model(name), SIZE)
    ids = _ids(2)
    inputs = family.eager_inputs(ids, _pixels(2))
    want, _ = family.model.model.get_rope_index(
        ids, inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"]
    )
    counts = SimpleNamespace(previous=lambda: torch.zeros(1, 3), write=lambda digits: None)
    step = Step(ids[0] == IMAGE, 0, ids.shape[1], counts)
    assert torch.equal(family.arguments(step, torch.float32)["position_ids"], want)


@pytest.mark.parametrize("name", list(VISION_MODELS))
def test_pixels_equal_the_image_processor(name):
    import transformers

    values = np.random.default_rng(1).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    family = family_of(vision_model(name), None if name == "gemma3" else SIZE)
    vision = {"image_size": SIZE, "image_mean": family.mean, "image_std": family.std}
    pixels = to_pixels(values, vision)
    if name == "gemma3":
        processor = transformers.Gemma3ImageProcessorPil(size={"height": SIZE, "width": SIZE})
        want = processor(values, return_tensors="pt")["pixel_values"]
    else:
        processor = transformers.Qwen2VLImageProcessorPil(patch_size=4, min_pixels=SIZE * SIZE)
        want = processor(values, return_tensors="pt")["pixel_values"]
        pixels = family.patches(pixels)
    torch.testing.assert_close(pixels, want, atol=1e-5, rtol=1e-5)


def test_placeholder_becomes_image_tokens():
    metadata = SimpleNamespace(vision={"image_token_count": 2})
    prompt = ImagePrompt("<i>", "<start>", "\n<start>", "<end>\n")
    assert prompt.expanded("a <start> b", metadata, 1) == "a \n<start><i><i><end>\n b"
    assert prompt.expanded("a <i><i>", metadata, 1) == "a <i><i>"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("qwen2_5_vl", {"image_size": 30}, "needs a multiple of 8"),
        ("gemma3", {"image_size": 64}, "has a table of positions for 32"),
        ("qwen2_5_vl", {"image_size": 32, "max_context_length": 8}, "an image has 16 tokens"),
    ],
)
def test_impossible_sizes_are_rejected(name, options, message, tmp_path):
    with pytest.raises(ConversionError) as raised:
        llm.export(vision_model(name), tmp_path / "b", tokenizer=tiny_tokenizer(), **options)
    assert message in str(raised.value)


def test_image_size_of_a_text_model_is_rejected(tmp_path):
    model = decoder("llama", eos_token_id=END_TURN)
    with pytest.raises(ConversionError, match="takes no images"):
        llm.export(model, tmp_path / "b", tokenizer=tiny_tokenizer(), image_size=32)


@pytest.mark.slow
def test_compressed_bundle_from_a_folder_passes_all_steps(tmp_path):
    model = vision_model("qwen2_vl")
    model.save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    path = llm.export(
        tmp_path / "model",
        tmp_path / "bundle",
        image_size=SIZE,
        max_context_length=CONTEXT,
        compression="8bit",
    )
    report = llm.check(path, tmp_path / "model")
    assert {step.status for step in report.steps} == {"ok"}, str(report)
