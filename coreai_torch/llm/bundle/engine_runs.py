"""Runs of a bundle that emulate the engine; each returns what it saw or raises."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...numerics.tolerance import SAME_TOKENS, limits
from .compute_dtype import compute_dtype
from .runtime import CHUNK, FIRST_SLOTS, BundleRuntime, Sequence
from .verifying import difference, eager_logits, int8_limit, limit_of, random_tokens

PROMPTS = (5, 17, 300)
STEPS = 16  # tokens that are decoded after each prompt
CHUNKED = 1100
LARGEST_STATE = 4 << 30  # bytes of both states

_SAME = limits(SAME_TOKENS)


class StepError(Exception):
    """A step found something that the engine does not accept."""


class StepSkippedError(Exception):
    """A step does not apply to this bundle."""


class Trial:
    """A loaded bundle, and the model to compare with, if any."""

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

    def same(self, actual: Tensor, want: Tensor, what: str) -> float:
        """Return the difference of two runs; raise if it is too large."""
        gap = difference(actual, want)
        if not gap <= max(_SAME[self.dtype], self.rounding):
            raise StepError(f"{what}: the logits differ by {gap:.2g} of the largest")
        return gap


def decode(trial: Trial) -> str:
    """Run prompts as one batch and decode greedily; compare all rows with the model."""
    worst, counts = 0.0, []
    for length in sorted({min(p, max(trial.context - STEPS, 1)) for p in PROMPTS}):
        tokens, rows = _greedy(trial.sequence(), trial.tokens(length, length), STEPS)
        tokens = tokens[: len(rows)]
        if trial.model is None:
            single = trial.sequence()
            want = torch.cat([single.append(one) for one in tokens.split(1)])
            worst = max(worst, trial.same(rows, want, f"prompt of {length} token by token"))
        else:
            want = eager_logits(trial.model, tokens)
            worst = max(worst, compare(trial, rows, want, length))
        counts.append(str(length))
    reference = "single tokens (no model given)" if trial.model is None else "transformers"
    return f"prompts of {', '.join(counts)} and {STEPS} tokens equal {reference}, {worst:.1g} apart"


def _greedy(sequence: Sequence, prompt: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return prompt and decoded tokens, and the logits of all that were run."""
    rows = sequence.append(prompt)
    tokens = prompt
    for _ in range(steps):
        new = rows[-1].float().argmax().reshape(1)
        tokens = torch.cat([tokens, new])
        rows = torch.cat([rows, sequence.append(new)])
    return tokens, rows


def compare(trial: Trial, rows: Tensor, want: Tensor, length: int) -> float:
    """Compare logits and best tokens; a best token may differ within the limit only."""
    limit = max(limit_of(compute_dtype(trial.model)), limit_of(trial.dtype), trial.rounding)
    gap = difference(rows, want)
    if not gap <= limit:
        raise StepError(
            f"prompt of {length}: the logits differ from transformers by {gap:.2g} of the largest, "
            f"the limit is {limit:.2g}"
        )
    best = want.max(-1).values
    chosen = want.gather(1, rows.float().argmax(-1, keepdim=True))[:, 0]
    if bool((best - chosen > 2 * limit * want.abs().max()).any()):
        raise StepError(f"prompt of {length}: another token is the most likely one")
    return gap


def grow(trial: Trial) -> str:
    """Cross the first number of slots and compare with a cache that never grows."""
    start = FIRST_SLOTS - STEPS // 2
    if trial.context < start + STEPS:
        raise StepSkippedError(f"a context of {trial.context} never outgrows {FIRST_SLOTS} slots")
    prompt = trial.tokens(start, 1)
    growing = trial.sequence()
    tokens, rows = _greedy(growing, prompt, STEPS)
    want_tokens, want = _greedy(trial.sequence(2 * FIRST_SLOTS), prompt, STEPS)
    if growing.states.slots != 2 * FIRST_SLOTS or not torch.equal(tokens, want_tokens):
        raise StepError("other tokens after the cache has grown")
    gap = trial.same(rows, want, "after growth")
    return f"{FIRST_SLOTS} to {2 * FIRST_SLOTS} slots give the same {STEPS} tokens, {gap:.1g} apart"


def chunks(trial: Trial) -> str:
    """Run a long prompt in chunks and compare with one batch."""
    length = min(CHUNKED, trial.context)
    size = CHUNK if length > 2 * CHUNK else max(length // 3, 1)
    tokens = trial.tokens(length, 2)
    rows = trial.sequence().append(tokens, chunk=size)
    gap = trial.same(rows, trial.logits(tokens), f"chunks of {size}")
    return f"{length} tokens in chunks of {size} equal one batch, {gap:.1g} apart"


def dirty(trial: Trial) -> str:
    """Fill the slots with NaN and large values; the logits must not change."""
    length = min(24, trial.context)
    tokens = trial.tokens(length, 3)
    split = max(length // 2, 1)
    want = trial.logits(tokens)
    for fill in (float("nan"), 1e4):
        sequence = trial.sequence(fill=fill)
        rows = [sequence.append(tokens[:split])]
        rows += [sequence.append(one[None]) for one in tokens[split:]]
        trial.same(torch.cat(rows), want, f"unused slots contain {fill}")
    return "unused slots of NaN and 1e4 change nothing"


def rewind(trial: Trial) -> str:
    """Return to a prefix, continue otherwise, and compare with a fresh run."""
    length = min(24, trial.context)
    kept = max(length // 2, 1)
    first, second = trial.tokens(length, 4), trial.tokens(length, 5)[kept:]
    if not len(second):
        raise StepSkippedError(f"a context of {trial.context} has no prefix")
    sequence = trial.sequence()
    sequence.append(first)
    sequence.rewind(kept)
    rows = sequence.append(torch.cat([first[:kept], second])[sequence.length :])[-len(second) :]
    want = trial.logits(torch.cat([first[:kept], second]))[kept:]
    gap = trial.same(rows, want, "after a rewind")
    how = "run again" if trial.runtime.fixed else f"rewound to {kept}"
    return f"{length} tokens {how} equal a fresh run, {gap:.1g} apart"


def warm_up(trial: Trial) -> str:
    """Run one token in an empty cache, then start again without clearing it."""
    sequence = trial.sequence()
    sequence.append(trial.tokens(1, 6))
    sequence.rewind(0)
    tokens = trial.tokens(min(8, trial.context), 7)
    gap = trial.same(sequence.append(tokens), trial.logits(tokens), "after the warm-up")
    return f"q = s = 1 at {FIRST_SLOTS} slots leaves no trace, {gap:.1g} apart"


def many_slots(trial: Trial) -> str:
    """Use more slots than the context has tokens."""
    slots = FIRST_SLOTS
    while slots <= trial.context:
        slots *= 2
    shape = trial.runtime.state_shape
    if shape[3] > 0:
        raise StepSkippedError("the number of slots is fixed")
    sizes = [slots if size < 0 else size for size in shape]
    if 2 * math.prod(sizes) * trial.runtime.state_dtype.itemsize > LARGEST_STATE:
        raise StepSkippedError(f"{slots} slots need more than {LARGEST_STATE >> 30} GiB")
    tokens = trial.tokens(min(8, trial.context), 8)
    gap = trial.same(trial.sequence(slots).append(tokens), trial.logits(tokens), f"{slots} slots")
    return f"{slots} slots for a context of {trial.context} work, {gap:.1g} apart"
