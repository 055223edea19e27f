"""The conformance steps of a vision-language bundle that other bundles do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..metadata import EMBEDDING, LOGITS, MAIN, VISION
from ..reference import difference, limit_of, random_tokens
from ..vision.embedded_rows import VisionRuntime
from ..vision.family import MARKER_WIDTH, Family
from ..vision.names import EMBEDDINGS, EMBEDS, FEATURES, PIXELS, POSITIONS, STATES, TOKENS
from . import runs
from .trial import STEPS, StepError, StepSkippedError, Trial

_IMAGES = (1, 2)


class VisionTrial(Trial):
    """A loaded vision-language bundle, and the model to compare with, if any."""

    runtime: VisionRuntime
    single = 2  # an image must not be split

    def __init__(self, runtime: VisionRuntime, family: Family | None) -> None:
        super().__init__(runtime, None if family is None else family.model)
        self.family = family
        self.vision = dict(runtime.metadata.vision or {})
        # Embeddings and features are float16 whatever the dtype of the cache is.
        self.dtype = torch.bfloat16 if runtime.state_dtype == torch.bfloat16 else torch.float16

    @property
    def limit(self) -> float:
        """Return the largest accepted difference from the model."""
        # Embeddings and features are float16 in every bundle.
        return max(limit_of(torch.float16), limit_of(self.runtime.state_dtype))

    def tokens(self, length: int, seed: int = 0) -> Tensor:
        """Return random tokens of text."""
        image = self.vision["image_token_id"]
        tokens = random_tokens(length, self.vocabulary, seed)
        return torch.where(tokens == image, (image + 1) % self.vocabulary, tokens)

    def pixels(self, seed: int = 0) -> Tensor:
        """Return random normalized pixels `[1, 3, size, size]`."""
        size, generator = self.vision["image_size"], torch.Generator().manual_seed(seed)
        return torch.randn(1, 3, size, size, generator=generator)

    def with_images(self, images: int, seed: int, text: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Return a prompt as tokens, the same with rows of images, and the pixels."""
        image, count = self.vision["image_token_id"], self.vision["image_token_count"]
        words = self.tokens(3 + 2 * images, text)
        pieces = [words[:3]]
        for number in range(images):
            pieces += [torch.full((count,), image), words[3 + 2 * number :][:2]]
        tokens = torch.cat(pieces)
        pixels = torch.cat([self.pixels(seed + number) for number in range(images)])
        rows = [row for one in pixels for row in self.runtime.add_image(one[None])]
        given = tokens.clone()
        given[tokens == image] = torch.tensor(rows, dtype=torch.long)
        return tokens, given, pixels

    def reference(self, tokens: Tensor, pixels: Tensor | None = None) -> Tensor:
        """Return the logits of the model after tokens with images, `[length, vocab]`."""
        if pixels is None or self.family is None:
            return super().reference(tokens)
        inputs = self.family.eager_inputs(tokens[None], pixels)
        with torch.no_grad():
            return torch.as_tensor(self.model(**inputs, use_cache=False).logits[0].float())

    def example(self) -> tuple[Tensor, Tensor]:
        """Return an image with text, and the logits of the model after each token."""
        tokens, given, pixels = self.with_images(1, seed=0)
        return given, self.reference(tokens, pixels)


def check_ports(runtime: VisionRuntime) -> str:
    """Check the names, types and sizes of the three functions; return what was seen."""
    vision, vocabulary = dict(runtime.metadata.vision or {}), runtime.metadata.vocab_size
    slots, size = runtime.metadata.max_context_length, vision["image_size"]
    found = []
    for role, inputs, outputs, states in (
        (VISION, [PIXELS], [FEATURES], []),
        (EMBEDDING, [TOKENS], [EMBEDDINGS], []),
        (MAIN, [EMBEDS, POSITIONS], [LOGITS], list(STATES)),
    ):
        ports = _ports(runtime, role)
        names = [*map(list, (ports.input_names, ports.output_names, ports.state_names))]
        if names != [inputs, outputs, states]:
            found.append(f"{role} has the ports {names}, not {[inputs, outputs, states]}")
    if found:
        raise StepError("; ".join(found))
    width = _shape(runtime, EMBEDDING, "output", EMBEDDINGS)[0][-1]
    cache = _shape(runtime, MAIN, "state", STATES[0])
    wanted = {
        (VISION, "input", PIXELS): ([1, 3, size, size], "float32"),
        (VISION, "output", FEATURES): ([1, vision["image_token_count"], width], "float16"),
        (EMBEDDING, "input", TOKENS): ([1, -1], "int32"),
        (EMBEDDING, "output", EMBEDDINGS): ([1, -1, width], "float16"),
        (MAIN, "input", EMBEDS): ([1, -1, width], "float16"),
        (MAIN, "input", POSITIONS): ([1, -1], "int32"),
        (MAIN, "output", LOGITS): ([1, -1, vocabulary], "float16"),
        (MAIN, "state", STATES[1]): cache,
    }
    found = [
        f"{name} of {role} is {seen}, not {want}"
        for (role, kind, name), want in wanted.items()
        if (seen := _shape(runtime, role, kind, name)) != want
    ]
    if len(cache[0]) != 5 or cache[0][3] != slots or min(cache[0]) < 1:
        found.append(f"{STATES[0]} is {cache[0]}, not [layers, 1, heads, {slots}, width]")
    if found:
        raise StepError("; ".join(found))
    return f"rows of {width} for {vision['image_token_count']} tokens an image, cache {cache[0]}"


def _ports(runtime: VisionRuntime, role: str) -> Any:
    return runtime.models[role].ports(MAIN)


def _shape(runtime: VisionRuntime, role: str, kind: str, name: str) -> tuple[list[int], str]:
    port = getattr(_ports(runtime, role), f"{kind}_descriptor")(name)
    return list(map(int, port.shape)), str(port.dtype)


def embedding(trial: VisionTrial) -> str:
    """Embed tokens; compare with the model, and check the marker."""
    lengths = (1, 7)
    for length in lengths:
        tokens = trial.tokens(length, length)
        rows = trial.runtime.embed(tokens)
        if float(rows[:, -MARKER_WIDTH:].abs().max()) != 0:
            raise StepError("the marker of text is not 0")
        if trial.family is not None:
            with torch.no_grad():
                want = trial.family.model.get_input_embeddings()(tokens)
            trial.near(rows[:, :-MARKER_WIDTH], want, "the embeddings")
    image = trial.runtime.embed(torch.tensor([trial.vision["image_token_id"]]))
    if not bool(image.isfinite().all()):
        raise StepError("the embedding of the image token is not finite")
    return f"{' and '.join(map(str, lengths))} tokens, marked as text"


def vision(trial: VisionTrial) -> str:
    """Encode an image; compare with the model, and check the marker."""
    pixels = trial.pixels()
    rows = trial.runtime.encode(pixels)
    if not bool((rows[:, -MARKER_WIDTH] == 1).all()):
        raise StepError("the marker of image tokens is not 1")
    features = rows[:, :-MARKER_WIDTH]
    if not bool(features.isfinite().all()):
        raise StepError("the features of an image are not finite in float16")
    if trial.family is None:
        return f"{len(rows)} finite features (no model given)"
    with torch.no_grad():
        want = trial.family.features(pixels)
    gap = trial.near(features, want, "the features")
    return f"{len(rows)} features equal transformers, {gap:.1g} apart"


def image_decoding(trial: VisionTrial) -> str:
    """Run prompts with images and decode greedily; compare all rows with the model."""
    worst, counts = 0.0, []
    for images in _IMAGES:
        tokens, given, pixels = trial.with_images(images, seed=images, text=images)
        steps = min(STEPS, trial.context - len(given))
        if steps < 1:
            continue
        sequence = trial.sequence(fill=float("nan"))
        rows = sequence.append(given)
        for _ in range(steps):
            new = rows[-1].float().argmax().reshape(1)
            tokens, rows = torch.cat([tokens, new]), torch.cat([rows, sequence.append(new)])
        counts.append(str(images))
        if trial.family is None:
            again = trial.sequence(fill=1e4).append(torch.cat([given, tokens[len(given) :]]))
            worst = max(worst, trial.same(rows, again, f"{images} images in one batch"))
        elif not bool((tokens[len(given) :] == trial.vision["image_token_id"]).any()):
            want = trial.reference(tokens, pixels)
            worst = max(worst, trial.near(rows, want, f"the logits after {images} images"))
    if not counts:
        raise StepSkippedError(f"a context of {trial.context} does not contain an image")
    reference = "one batch (no model given)" if trial.family is None else "transformers"
    return f"{' and '.join(counts)} images equal {reference}, {worst:.1g} apart"


def other_image(trial: VisionTrial) -> str:
    """Rewind to before an image, run another one, and compare with a fresh run."""
    _, first, _ = trial.with_images(1, seed=3)
    _, second, _ = trial.with_images(1, seed=4)
    if trial.context < len(first):
        raise StepSkippedError(f"a context of {trial.context} does not contain an image")
    sequence = trial.sequence()
    before = sequence.append(first)
    sequence.rewind(0)
    rows = sequence.append(second)
    want = trial.sequence(fill=float("nan")).append(second)
    gap = trial.same(rows, want, "after another image")
    if difference(before[-1], want[-1]) <= gap:
        raise StepError("another image does not change the logits")
    return f"another image equals a fresh run, {gap:.1g} apart"


RUNS: dict[str, Callable[[Any], str]] = {
    "embedding": embedding,
    "vision": vision,
    "image decoding": image_decoding,
    "other image": other_image,
    "sequential decoding": runs.decode,
    "chunks": runs.chunks,
    "dirty cache": runs.dirty,
    "rewind": runs.rewind,
    "warm-up": runs.warm_up,
}
