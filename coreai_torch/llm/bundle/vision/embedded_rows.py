"""Run a vision-language bundle as the sequential engine does.

Tokens of the vocabulary are embedded. Tokens from `vocab_size` on are rows of encoded images, so
that the rows of one image are the same tokens in every prompt, and no other tokens.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import Tensor

from ..metadata import EMBEDDING, KEYS, LOGITS, MAIN, VALUES, VISION
from ..runtime import BundleRuntime
from ..states import States
from .names import EMBEDDINGS, EMBEDS, FEATURES, PIXELS, POSITIONS, STATES, TOKENS


class VisionRuntime(BundleRuntime):
    """The three functions of a bundle; it keeps encoded images, but no tokens, between calls."""

    # An image must not be split: in Gemma 3 its first rows see its last ones.
    whole_prompt = sys.maxsize

    def _load(self) -> None:
        assets = {MAIN: self.metadata.asset, **self.metadata.other_assets}
        self.models = {role: self._opened(assets[role]) for role in (MAIN, EMBEDDING, VISION)}
        self.model = self.models[MAIN]
        self._set_states(*self.model.states(MAIN)[STATES[0]])
        self._starts: dict[str, int] = {}
        self._rows = torch.zeros(0)

    def encode(self, pixels: Tensor) -> Tensor:
        """Return the marked features `[tokens, width]` of pixels `[1, 3, size, size]`."""
        return self.models[VISION](MAIN, {PIXELS: pixels.float()}, {})[FEATURES][0]

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the marked embeddings `[q, width]` of tokens of the vocabulary."""
        feeds = {TOKENS: tokens.reshape(1, -1).to(torch.int32)}
        return self.models[EMBEDDING](MAIN, feeds, {})[EMBEDDINGS][0]

    def add_image(self, pixels: Tensor) -> range:
        """Encode an image, unless it is known, and return its tokens."""
        key = hashlib.sha256(pixels.float().contiguous().numpy().tobytes()).hexdigest()
        if key not in self._starts:
            rows = self.encode(pixels)
            self._starts[key] = len(self._rows)
            self._rows = torch.cat([self._rows, rows]) if len(self._rows) else rows
        first = self.metadata.vocab_size + self._starts[key]
        return range(first, first + dict(self.metadata.vision or {})["image_token_count"])

    def rows(self, tokens: Tensor) -> Tensor:
        """Return embeddings and image features `[q, width]`."""
        vocabulary = self.metadata.vocab_size
        is_text = tokens < vocabulary
        rows = self.embed(torch.where(is_text, tokens, 0))
        if not bool(is_text.all()):
            rows = rows.clone()
            rows[~is_text] = self._rows[tokens[~is_text] - vocabulary]
        return rows

    def __call__(self, tokens: Tensor, total: int, states: States) -> Tensor:
        """Append tokens `[q]` so that the cache contains `total`; return logits `[q, vocab]`."""
        feeds = {
            EMBEDS: self.rows(tokens.long())[None],
            POSITIONS: torch.arange(total, dtype=torch.int32)[None],
        }
        given = dict(zip(STATES, states.arrays.values(), strict=True))
        results = self.model(MAIN, feeds, given)
        states.write(dict(zip(map(_common_name, results), results.values(), strict=True)), total)
        return results[LOGITS][0]


def _common_name(output: str) -> str:
    """Return the name that an output with rows of a state has in bundles without vision."""
    common = dict(zip(STATES, (KEYS, VALUES), strict=True))
    state, bracket, rest = output.partition("[")
    return common.get(state, state) + bracket + rest
