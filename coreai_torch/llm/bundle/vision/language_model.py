"""Run a vision-language bundle with text and images, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....errors import GenerationError
from ..language_model import LanguageModel, Messages
from ..prompts import Prompt, only, read_messages
from ..rows import RowPool
from ..runtime import Sequence as Tokens
from .embedded_rows import VisionRuntime
from .images import to_pixels
from .prompts import ImagePrompt, image_runs


class ImagePool(RowPool):
    """Rows of the cache in which the first image tokens of each request are images."""

    def __init__(self, runtime: VisionRuntime) -> None:
        super().__init__(runtime)
        self.images: list[range] = []
        self.image_token = int(dict(runtime.metadata.vision or {})["image_token_id"])

    def logits(self, requests: Sequence[tuple[int, ...]]) -> Tensor:
        """Return the logits after the last token of each request, `[requests, vocab]`."""
        return super().logits([self.resolved(one) for one in requests])

    def resolved(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return tokens with rows of images instead of image tokens, as long as there are any."""
        rows = iter([row for image in self.images for row in image])
        return tuple(next(rows, one) if one == self.image_token else one for one in tokens)


class VisionLanguageModel(LanguageModel):
    """A loaded vision-language bundle with its tokenizer.

    `generate`, `stream`, `chat` and `logits` take `images`: files, PIL images, uint8 values
    `[height, width, 3]`, or normalized values `[3, size, size]`. A text prompt contains one
    placeholder for each image, `placeholder`.
    """

    def __init__(
        self,
        bundle: Path | str,
        *,
        engine: str = "runtime",
        device: str = "cpu",
        expand_weights: bool | None = None,
    ) -> None:
        """Load the assets and the tokenizer of a bundle."""
        super().__init__(bundle, engine=engine, device=device, expand_weights=expand_weights)
        runtime = self._decoder.pool.runtime
        assert isinstance(runtime, VisionRuntime)
        self._runtime = runtime
        self._pool = self._decoder.pool = ImagePool(runtime)
        self._prompt = ImagePrompt.read(self.metadata, self.tokenizer)

    @property
    def placeholder(self) -> str:
        """Return the text that stands for an image in a prompt."""
        return self._prompt.placeholder

    def generate(self, prompt: Any, max_new_tokens: int | None = None, **options: Any) -> Any:
        """Continue a prompt with images; see `LanguageModel.generate`."""
        return super().generate(self._take(prompt, options), max_new_tokens, **options)

    def stream(
        self, prompt: Any, max_new_tokens: int | None = None, **options: Any
    ) -> Iterator[str]:
        """Yield the new text of one prompt in pieces; it takes the arguments of `generate`."""
        return super().stream(self._take(prompt, options), max_new_tokens, **options)

    def logits(self, prompt: Any, images: Sequence[Any] = ()) -> Tensor:
        """Return the logits of all tokens of one prompt, `[length, vocab]`."""
        row = only(self._read(self._take(prompt, {"images": images})).rows, "logits")
        return Tokens(self._runtime).append(torch.tensor(self._pool.resolved(row))).float()

    def _take(self, prompt: Any, options: dict[str, Any]) -> Any:
        """Encode the images of a call, and return the prompt with their tokens."""
        images = list(options.pop("images", None) or ())
        if images and options.get("prompt_cache") is not None:
            raise GenerationError(
                "a prompt cache does not store images\n  try   leave prompt_cache out"
            )
        self._pool.images = [self._encoded(one) for one in images]
        if isinstance(prompt, str):
            return self._prompt.expanded(prompt, self.metadata, len(images)) if images else prompt
        return prompt

    def _encoded(self, image: Any) -> range:
        return self._runtime.add_image(to_pixels(image, self.metadata.vision or {}))

    def _read(self, prompt: Any) -> Prompt:
        request = super()._read(prompt)
        images = len(self._pool.images)
        if images and len(request.rows) != 1:
            raise GenerationError("images belong to one prompt\n  try   pass one prompt at a time")
        for row in request.rows:
            image_runs(row, self.metadata, images)
        return request

    def _shared(self, request: Prompt) -> int:
        wanted = self._pool.resolved(request.rows[0])
        return max((row.shared(wanted) for row in self._pool.rows), default=0)

    def _render(self, messages: Messages, options: dict[str, Any]) -> Tensor:
        """Return the tokens of a conversation, whose messages may contain images."""
        given = read_messages(messages)
        found = [*(options.pop("images", None) or ())]
        plain = [_without_images(one, found) for one in given]
        options["images"] = found
        text = self._render_text(plain, options)
        if found:
            text = self._prompt.expanded(text, self.metadata, len(found))
        return torch.tensor([self.tokenizer(text, add_special_tokens=False).input_ids])


def _without_images(message: Mapping[str, Any], found: list[Any]) -> dict[str, Any]:
    """Return a message for the chat template; append its images to `found`."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return dict(message)
    parts = []
    for part in content:
        if part.get("type") == "image":
            found.append(part.get("image", part.get("url", part.get("path"))))
            parts.append({"type": "image"})
        else:
            parts.append(dict(part))
    return {**message, "content": parts}
