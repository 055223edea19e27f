"""Compare a vision-language bundle with the model that it was made from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ....errors import ConversionError
from ..runtime import Sequence
from ..verifying import difference, limit_of, random_tokens
from .family import Family
from .runtime import VisionRuntime

LIMIT = limit_of(torch.float16)  # embeddings and features are float16 in every bundle
_STEPS = 2  # tokens that run alone after the prompt


def random_pixels(size: int, seed: int = 0) -> Tensor:
    """Return reproducible normalized pixels `[1, 3, size, size]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 3, size, size, generator=generator)


def random_text(length: int, vocabulary: int, image_token: int, seed: int = 0) -> Tensor:
    """Return random tokens without the token of images."""
    tokens = random_tokens(length, vocabulary, seed)
    return torch.where(tokens == image_token, (image_token + 1) % vocabulary, tokens)


def with_images(tokens: Tensor, images: list[range], image_token: int) -> Tensor:
    """Return tokens in which rows of images replace the image tokens, in order."""
    rows = torch.tensor([row for image in images for row in image], dtype=torch.long)
    replaced = tokens.clone()
    replaced[tokens == image_token] = rows
    return replaced


def image_prompt(runtime: VisionRuntime, images: int, seed: int = 0) -> Tensor:
    """Return random text with images after the third and every further two tokens."""
    vision = dict(runtime.metadata.vision or {})
    token, count = vision["image_token_id"], vision["image_token_count"]
    text = random_text(3 + 2 * images, runtime.metadata.vocab_size, token, seed)
    pieces = [text[:3]]
    for number in range(images):
        pieces += [torch.full((count,), token), text[3 + 2 * number :][:2]]
    return torch.cat(pieces)


def eager_logits(family: Family, tokens: Tensor, pixels: Tensor) -> Tensor:
    """Return the model's own logits `[length, vocab]`."""
    inputs = family.eager_inputs(tokens[None], pixels)
    with torch.no_grad():
        return torch.as_tensor(family.model(**inputs, use_cache=False).logits[0].float())


def verify_bundle(bundle: Path, family: Family) -> None:
    """Run an image with text and single tokens; raise `ConversionError` if any logits differ."""
    # The Linux runtime accumulates float16 products in 16 bits, unlike devices.
    dtype = family.dtype
    runtime = VisionRuntime(bundle, "torch" if dtype == torch.float16 else "isolated")
    tokens, pixels = image_prompt(runtime, 1), random_pixels(family.image.size)
    given = with_images(tokens, [runtime.add_image(pixels)], family.image.token_id)
    last = len(given) - _STEPS
    sequence = Sequence(runtime, runtime.states(fill=float("nan")))
    rows = [sequence.append(given[:last])]
    rows += [sequence.append(one) for one in given[last:].split(1)]
    want = eager_logits(family, tokens, pixels)
    gap, limit = difference(torch.cat(rows), want), max(LIMIT, limit_of(dtype))
    if not gap <= limit:
        raise ConversionError(
            f"the bundle of {type(family.model).__name__} computes other logits than the model: "
            f"they differ by {gap:.2g} of the largest, the limit is {limit:.2g}\n"
            "  try   use a model class of transformers itself; pass verify=False to skip this check"
        )
