"""Steps of `llm check` for static bundles: descriptors, and runs that emulate the engine."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ....asset.reading import Type
from ..metadata import KEYS, VALUES
from ..static import names
from ..static.blocks import Block, StaticRuntime, StaticStates
from .runs import decode, rewind
from .trial import STEPS, StepError, StepSkippedError, Trial

_STALE = 200  # tokens of another sequence in a dirty cache


def check_ports(runtime: StaticRuntime) -> str:
    """Compare the functions, names, dtypes and shapes with those that the engine expects."""
    context, vocabulary = runtime.metadata.max_context_length, runtime.metadata.vocab_size
    if not names.is_context(context):
        raise StepError(f"max_context_length is {context}, not 256, 512, 1024, ...")
    wanted = names.function_names(context)
    extra = [one for one in runtime.model.function_names if _is_step(one) and one not in wanted]
    if extra:
        raise StepError(f"the engine would also choose {', '.join(extra)}")
    layers, _, channels, _, _ = runtime.state_shape
    if max(layers, channels) > context:
        raise StepError(f"a cache {list(runtime.state_shape)} is larger than the context")
    (hidden,) = (runtime.model.ports(names.LOAD).outputs[names.TABLE].shape[2],)
    table = f"{vocabulary}x1x{hidden}"
    found = []
    for name in wanted:
        function = runtime.model.ports(name)
        actual = [_texts(one) for one in (function.inputs, function.states, function.outputs)]
        expected = _expected(name, table, hidden, vocabulary, (layers, channels))
        found += _differences(name, actual, expected)
    if found:
        raise StepError("; ".join(found[:3]))
    sizes = f"{len(names.slots(context))} by {len(names.QUERIES)} sizes"
    return f"{layers} layers of {channels} channels, {sizes}, float16"


def _is_step(name: str) -> bool:
    return name.startswith((names.EXTEND, names.PROMPT, names.GATHER))


def _texts(ports: dict[str, Type]) -> dict[str, str]:
    """Return shape and element type of each port; the table may be float16 or int8."""
    sizes = {name: "x".join(map(str, one.shape)) for name, one in ports.items()}
    return {
        name: f"{sizes[name]} {'table' if name == names.TABLE else one.element}"
        for name, one in ports.items()
    }


def _expected(
    name: str, table: str, hidden: int, vocabulary: int, cache: tuple[int, int]
) -> list[dict[str, str]]:
    tables = {names.TABLE: f"{table} table"}
    if name == names.LOAD:
        return [{}, {}, tables]
    *_, slots, query = name.split("_")
    if name.startswith(names.GATHER):
        inputs = {names.TOKENS: f"1x{query} si32", **tables}
        return [inputs, {}, {names.GATHERED: f"1x{query}x1x{hidden} f16"}]
    layers, channels = cache
    inputs = {
        names.INPUT: f"1x{query}x1x{hidden} f16",
        names.POSITIONS: f"1x{query} ui16",
        names.STEP: "1 si32",
        names.MASK: f"1x{slots}x1x{query} f16",
        **tables,
    }
    states = dict.fromkeys((names.KEYS, names.VALUES), f"{layers}x1x{channels}x1x{slots} f16")
    rows = f"1x1x{query}x{vocabulary}" if name.startswith(names.EXTEND) else "1x1x1x1"
    return [inputs, states, {names.LOGITS: f"{rows} f16"}]


def _differences(
    name: str, actual: list[dict[str, str]], expected: list[dict[str, str]]
) -> list[str]:
    kinds = ("inputs", "states", "outputs")
    return [
        f"the {kind} of {name} are {one}, not {other}"
        for kind, one, other in zip(kinds, actual, expected, strict=True)
        if one != other
    ]


def prefill(trial: Trial) -> str:
    """Run a prompt through `prompt_opt` and `extend`; compare with `extend` alone."""
    runtime = _runtime(trial)
    length = min(_STALE, trial.context)
    tokens = trial.tokens(length, 2)
    states, others = runtime.states(), runtime.states()
    rows = runtime.prefill(tokens, length, states)
    want = runtime(tokens, length, others)
    gap = trial.same(rows, want[-len(rows) :], "after prompt_opt")
    _same_caches(trial, states, others, length, "prompt_opt")
    return f"{length} tokens by prompt_opt and extend equal extend alone, {gap:.1g} apart"


def _same_caches(
    trial: Trial, states: StaticStates, others: StaticStates, length: int, what: str
) -> None:
    for name in (KEYS, VALUES):
        one, other = (each.arrays[name][..., :length] for each in (states, others))
        trial.same(one, other, f"{name} after {what}")


def every_size(trial: Trial) -> str:
    """Run all functions on the same tokens; sizes must not change logits or caches."""
    runtime = _runtime(trial)
    largest = max(names.QUERIES)
    tokens = trial.tokens(largest, 3)
    states = runtime.states()
    want = runtime(tokens, largest, states)
    worst = 0.0
    for slots in names.slots(trial.context):
        for query in names.QUERIES:
            label = f"{slots}_{query}"
            for family in (names.EXTEND, names.PROMPT):
                other = runtime.states()
                other.tokens = tokens[:query].to(torch.int32)
                rows = runtime.run(Block(query, 0, 0, query), family, other, slots)
                if family == names.EXTEND:
                    worst = max(worst, trial.same(rows, want[:query], f"{family}_{label}"))
                _same_caches(trial, states, other, query, f"{family}_{label}")
    count = 2 * len(names.QUERIES) * len(names.slots(trial.context))
    return f"{count} functions compute the same, {worst:.1g} apart"


def aligned_blocks(trial: Trial) -> str:
    """Append token by token, which runs the tokens of a block again; compare with one block."""
    tokens = trial.tokens(2 * min(names.QUERIES) + 3, 4)
    sequence = trial.sequence()
    rows = torch.cat([sequence.append(one) for one in tokens.split(1)])
    gap = trial.same(rows, trial.logits(tokens), "token by token")
    return f"{len(tokens)} tokens one by one equal one block, {gap:.1g} apart"


def stale_slots(trial: Trial) -> str:
    """Leave another sequence, and large values, in the slots that are not used."""
    runtime = _runtime(trial)
    tokens, other = trial.tokens(24, 5), trial.tokens(min(_STALE, trial.context), 6)
    want = trial.logits(tokens)
    for fill in (-runtime.unused, runtime.unused):
        sequence = trial.sequence(fill=fill)
        trial.same(sequence.append(tokens), want, f"unused slots contain {fill}")
    sequence = trial.sequence()
    sequence.append(other)
    sequence.rewind(0)
    rows = torch.cat([sequence.append(one) for one in tokens.split(5)])
    trial.same(rows, want, "unused slots contain another sequence")
    return f"other tokens and values of {runtime.unused:g} in unused slots change nothing"


def end_of_context(trial: Trial) -> str:
    """Fill the context up to its last slot."""
    runtime, length = _runtime(trial), trial.context
    if length > 4096:
        raise StepSkippedError(f"a context of {length} takes too long on this machine")
    tokens = trial.tokens(length, 7)
    states = runtime.states()
    runtime.prefill(tokens[:-STEPS], length - STEPS, states)
    pieces = [runtime(one, length - STEPS + n + 1, states) for n, one in _numbered(tokens)]
    rows = torch.cat(pieces)
    if not bool(rows.isfinite().all()):
        raise StepError(f"the logits of the last {STEPS} of {length} tokens are not finite")
    if trial.model is None:
        return f"{length} tokens fill the context"
    gap = trial.compare(rows, trial.reference(tokens)[-STEPS:], f"prompt of {length}")
    return f"{length} tokens fill the context and equal transformers, {gap:.1g} apart"


def _numbered(tokens: Tensor) -> list[tuple[int, Tensor]]:
    return list(enumerate(tokens[-STEPS:].split(1)))


def _runtime(trial: Trial) -> StaticRuntime:
    assert isinstance(trial.runtime, StaticRuntime)
    return trial.runtime


RUNS: dict[str, Callable[[Trial], str]] = {
    "sequential decoding": decode,
    "prompt_opt": prefill,
    "every size": every_size,
    "aligned blocks": aligned_blocks,
    "dirty cache": stale_slots,
    "rewind": rewind,
    "end of context": end_of_context,
}
