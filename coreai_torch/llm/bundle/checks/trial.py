"""A loaded bundle that checks run, and the model to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ....numerics.tolerance import SAME_TOKENS, limits
from ..reference import (
    compute_dtype,
    difference,
    eager_logits,
    int8_limit,
    limit_of,
    random_tokens,
)
from ..runtime import FIRST_SLOTS, BundleRuntime, Sequence

STEPS = 16  # tokens that are decoded after each prompt
_EXAMPLE = 16
_SAME = limits(SAME_TOKENS)


class StepError(Exception):
    """A step found something that the engine does not accept."""


class StepSkippedError(Exception):
    """A step does not apply to this bundle."""


class Trial:
    """A loaded bundle, and the model to compare with, if any."""

    single = 4  # tokens of the example that run alone

    def __init__(self, runtime: BundleRuntime, model: Any) -> None:
        self.runtime, self.model = runtime, model
        self.context = runtime.metadata.max_context_length
        self.vocabulary = runtime.metadata.vocab_size
        self.dtype = runtime.compute_dtype
        self.rounding = int8_limit(runtime.metadata)

    def tokens(self, length: int, seed: int = 0) -> Tensor:
        """Return random tokens."""
        return random_tokens(length, self.vocabulary, seed)

    def sequence(self, slots: int = FIRST_SLOTS, fill: float = 0.0) -> Sequence:
        """Return an empty sequence in a cache of one value."""
        return Sequence(self.runtime, self.runtime.states(slots, fill))

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the logits of a fresh run in one batch."""
        return self.sequence().append(tokens, chunk=len(tokens))

    def reference(self, tokens: Tensor) -> Tensor:
        """Return the logits of the model."""
        return eager_logits(self.model, tokens)

    def example(self) -> tuple[Tensor, Tensor]:
        """Return tokens to run, and the logits of the model after each of them."""
        tokens = self.tokens(min(_EXAMPLE, self.context))
        return tokens, self.reference(tokens)

    @property
    def limit(self) -> float:
        """Return the largest accepted difference from the model."""
        return max(limit_of(compute_dtype(self.model)), limit_of(self.dtype), self.rounding)

    def compare(self, actual: Tensor, want: Tensor, what: str) -> float:
        """Compare logits with the model; another token may be the best within the limit only."""
        gap, limit = self.near(actual, want, f"{what}: the logits"), self.limit
        best = want.max(-1).values
        chosen = want.gather(1, actual.float().argmax(-1, keepdim=True))[:, 0]
        if bool((best - chosen > 2 * limit * want.abs().max()).any()):
            raise StepError(f"{what}: another token is the most likely one")
        return gap

    def near(self, actual: Tensor, want: Tensor, what: str) -> float:
        """Return the difference from the model; raise if it is too large."""
        gap, limit = difference(actual, want), self.limit
        if not gap <= limit:
            raise StepError(
                f"{what} differ from transformers by {gap:.2g} of the largest, the limit is "
                f"{limit:.2g}"
            )
        return gap

    def same(self, actual: Tensor, want: Tensor, what: str) -> float:
        """Return the difference of two runs; raise if it is too large."""
        gap = difference(actual, want)
        if not gap <= max(_SAME[self.dtype], self.rounding):
            raise StepError(f"{what}: the logits differ by {gap:.2g} of the largest")
        return gap


@dataclass
class Subject:
    """The bundle, and what earlier checks loaded from it."""

    bundle: Path
    model: Any = None
    reference_tokenizer: Any = None
    engine: str = "auto"
    device: str = "cpu"
    tokenizer: Any = None
    trial: Trial | None = None
