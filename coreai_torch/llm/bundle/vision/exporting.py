"""The assets, metadata and stop token of a vision-language bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ....converter import TorchConverter
from ....errors import ConversionError
from ..metadata import EMBEDDING, VISION, BundleMetadata
from ..states import LayerShape
from ..tokenizer_folder import turn_end
from .family import Family
from .images import STRATEGY, normalization
from .names import ENGINE_END
from .prompts import KEY
from .traced_functions import Decoder, stage_decoder, stage_embedding, stage_vision

EMBEDDING_ASSET, VISION_ASSET = "embed.aimodel", "vision.aimodel"


def parts(
    family: Family, layers: Sequence[LayerShape], metadata: BundleMetadata, *, turn_weights: bool
) -> dict[str, Callable[[TorchConverter], None]]:
    """Return what adds the function of each asset to a converter."""
    slots = metadata.max_context_length
    if slots <= family.image.tokens:
        raise ConversionError(
            f"an image has {family.image.tokens} tokens, the context {slots}\n"
            "  try   pass a larger max_context_length, or a smaller image_size"
        )
    decoder = Decoder(family, layers)
    return {
        VISION_ASSET: partial(stage_vision, family=family, turn_weights=turn_weights),
        EMBEDDING_ASSET: partial(stage_embedding, family=family),
        metadata.asset: partial(
            stage_decoder, decoder=decoder, slots=slots, turn_weights=turn_weights
        ),
    }


def describe(
    metadata: BundleMetadata, family: Family, tokenizer: Any, processor: Any
) -> BundleMetadata:
    """Return the metadata with the other assets and the sizes of images."""
    image = family.image
    vision = {
        "image_size": image.size,
        "patch_size": image.patch,
        "image_token_count": image.tokens,
        "image_token_id": image.token_id,
        "image_mean": family.mean,
        "image_std": family.std,
        "rescale_factor": 1 / 255,
        "image_strategy": STRATEGY,
        **normalization(processor),
    }
    return replace(
        metadata,
        other_assets={EMBEDDING: EMBEDDING_ASSET, VISION: VISION_ASSET},
        vision=vision,
        user_data={**metadata.user_data, KEY: family.prompt(tokenizer).to_json()},
    )


def write_turn_end(folder: Path, tokenizer: Any) -> None:
    """Make the token that ends a turn the tokenizer's end token.

    The engine of vision-language bundles stops at the end token and at `<|im_end|>` only.
    """
    end = turn_end(tokenizer)
    if end is None or end == ENGINE_END:
        return
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["eos_token"] = end
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
