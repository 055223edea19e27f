"""Runs of a bundle that emulate the engine; each returns what it saw or raises."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..runtime import CHUNK, FIRST_SLOTS, Sequence
from .trial import STEPS, StepError, StepSkippedError, Trial

PROMPTS = (5, 17, 300)
CHUNKED = 1100
LARGEST_STATE = 4 << 30  # bytes of both states


def decode(trial: Trial) -> str:
    """Run prompts as one batch and decode greedily; compare all rows with the model."""
    worst, counts = 0.0, []
    for length in sorted({min(p, max(trial.context - STEPS, 1)) for p in PROMPTS}):
        tokens, rows = greedy(trial.sequence(), trial.tokens(length, length), STEPS)
        tokens = tokens[: len(rows)]
        if trial.model is None:
            single = trial.sequence()
            want = torch.cat([single.append(one) for one in tokens.split(1)])
            worst = max(worst, trial.same(rows, want, f"prompt of {length} token by token"))
        else:
            want = trial.reference(tokens)
            worst = max(worst, trial.compare(rows, want, f"prompt of {length}"))
        counts.append(str(length))
    reference = "single tokens (no model given)" if trial.model is None else "transformers"
    return f"prompts of {', '.join(counts)} and {STEPS} tokens equal {reference}, {worst:.1g} apart"


def greedy(sequence: Sequence, prompt: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return prompt and decoded tokens, and the logits of all that were run."""
    rows = sequence.append(prompt)
    tokens = prompt
    for _ in range(steps):
        new = rows[-1].float().argmax().reshape(1)
        tokens = torch.cat([tokens, new])
        rows = torch.cat([rows, sequence.append(new)])
    return tokens, rows


def grow(trial: Trial) -> str:
    """Cross the first number of slots and compare with a cache that never grows."""
    start = FIRST_SLOTS - STEPS // 2
    if trial.context < start + STEPS:
        raise StepSkippedError(f"a context of {trial.context} never outgrows {FIRST_SLOTS} slots")
    prompt = trial.tokens(start, 1)
    growing = trial.sequence()
    tokens, rows = greedy(growing, prompt, STEPS)
    want_tokens, want = greedy(trial.sequence(2 * FIRST_SLOTS), prompt, STEPS)
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


RUNS: dict[str, Callable[[Trial], str]] = {
    "sequential decoding": decode,
    "growth": grow,
    "chunks": chunks,
    "dirty cache": dirty,
    "rewind": rewind,
    "warm-up": warm_up,
    "slots above context": many_slots,
}
