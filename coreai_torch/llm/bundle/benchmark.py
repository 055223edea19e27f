"""Measure how fast a bundle runs on this machine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from ...errors import GenerationError
from ...stopwatch import Stopwatch
from .opening import fast_loading, open_bundle
from .reference import random_tokens
from .runtime import Sequence


@dataclass(frozen=True)
class Speed:
    """Medians over several trials."""

    asset_bytes: int
    load_s: float
    prompt_tokens: int
    decode_tokens: int
    trials: int
    prompt_tokens_per_s: float
    decode_tokens_per_s: float
    decode_ms: float


def measure(
    bundle: Path | str,
    prompt: int,
    tokens: int,
    trials: int,
    expand_weights: bool | None = None,
) -> Speed:
    """Run a random prompt and decode single tokens, several times, after one warm-up."""
    watch = Stopwatch()
    runtime = open_bundle(bundle, load=fast_loading(expand_weights))
    load_s = watch.lap()
    metadata = runtime.metadata
    if prompt + tokens > metadata.max_context_length:
        raise GenerationError(
            f"{prompt} and {tokens} tokens exceed the context of {metadata.max_context_length}\n"
            "  try   measure fewer tokens"
        )
    given = random_tokens(prompt + tokens, metadata.vocab_size)
    sequence = Sequence(runtime)
    sequence.append(given[:1])  # compiles the function
    prompts, steps = [], []
    for _ in range(trials):
        sequence.rewind(0)
        watch.lap()
        sequence.append(given[:prompt])
        prompts.append(watch.lap())
        for token in given[prompt:].split(1):
            sequence.append(token)
        steps.append(watch.lap() / tokens)
    step = statistics.median(steps)
    files = (Path(bundle) / metadata.asset).rglob("*")
    return Speed(
        asset_bytes=sum(one.stat().st_size for one in files if one.is_file()),
        load_s=load_s,
        prompt_tokens=prompt,
        decode_tokens=tokens,
        trials=trials,
        prompt_tokens_per_s=prompt / statistics.median(prompts),
        decode_tokens_per_s=1 / step,
        decode_ms=1000 * step,
    )
