"""Images in prompts: where they are, and the tokens that stand for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ....errors import GenerationError
from ..metadata import BundleMetadata

KEY = "coreai_torch.image_prompt"


@dataclass(frozen=True)
class ImagePrompt:
    """The text that stands for an image in a prompt, and what it becomes.

    The placeholder is replaced by `before`, as many image tokens as an image has, and `after`.
    """

    image: str
    placeholder: str
    before: str = ""
    after: str = ""

    @classmethod
    def read(cls, metadata: BundleMetadata, tokenizer: Any) -> ImagePrompt:
        """Read what a bundle stores; otherwise the image token itself is the placeholder."""
        stored = metadata.user_data.get(KEY)
        if stored is not None:
            return cls(**json.loads(stored))
        token = str(tokenizer.convert_ids_to_tokens(_vision(metadata)["image_token_id"]))
        return cls(token, token)

    def to_json(self) -> str:
        """Return the text that a bundle stores."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def expanded(self, text: str, metadata: BundleMetadata, images: int) -> str:
        """Return the text with all image tokens; text that already has them is unchanged."""
        count = _vision(metadata)["image_token_count"]
        if images and text.count(self.image) == images * count:
            return text
        if text.count(self.placeholder) != images:
            raise GenerationError(
                f"the prompt contains {self.placeholder!r} {text.count(self.placeholder)} times, "
                f"but {images} images were given\n"
                f"  try   write {self.placeholder!r} where each image belongs"
            )
        return text.replace(self.placeholder, f"{self.before}{self.image * count}{self.after}")


def image_runs(row: Sequence[int], metadata: BundleMetadata, images: int) -> list[int]:
    """Return the positions of all image tokens; raise unless there are enough for the images."""
    vision = _vision(metadata)
    places = [at for at, token in enumerate(row) if token == vision["image_token_id"]]
    wanted = images * vision["image_token_count"]
    if len(places) != wanted and (images or wanted):
        raise GenerationError(
            f"the prompt has {len(places)} image tokens, but {images} images need {wanted}\n"
            "  try   pass text with one placeholder for each image"
        )
    return places if images else []


def _vision(metadata: BundleMetadata) -> dict[str, Any]:
    return dict(metadata.vision or {})
