"""Export, decompose, convert and run samples, and compare them with eager.

Samples are exported as `coreai_torch.convert` does. Those in which that replaces a function of
torch are judged a second time, exported by torch alone, as in the documented steps.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import torch

import coreai_torch
from coreai_torch.capture.export_rewrites import rewrite_for_export
from coreai_torch.capture.validate import calls as graph_calls
from coreai_torch.errors import (
    ConversionError,
    LoweringError,
    NotDecomposedError,
    UnsupportedOpError,
    WrongResultError,
    module_path,
    target_name,
)
from coreai_torch.ir.types import narrow

from .. import runtime
from . import entries
from .modules import Batch, Call
from .outcome import Kind, Outcome, Verdict
from .set_aside import NUMBERS, VIEWS
from .ties import settled
from .tolerances import in_whole_numbers, tolerance, values_are_undefined
from .truth import no_further_than_eager, truth

LARGEST_BATCH = 48
Trying = Callable[[list[tuple[str, int]]], None]
Rewrites = Callable[[], AbstractContextManager[set[Any]]]
_OUR_FAULT = (LoweringError, WrongResultError, NotDecomposedError)


class _BatchFailed(Exception):
    """A batch failed; `at` has the samples that its error names.

    `settled` has the outcomes that are known nevertheless.
    """

    def __init__(self, cause: Exception | None = None, settled: dict[str, Outcome] | None = None):
        super().__init__(str(cause))
        self.at = set(re.findall(r"in module '(\w+)[.']", str(cause)))
        self.settled = settled or {}


def judge(
    name: str, wanted: Mapping[str, Sequence[int]], *, alone: bool, trying: Trying
) -> Iterator[Verdict]:
    """Yield verdicts for samples of an entry by dtype; `trying` is called before each batch.

    Samples run in batches, which are split if one fails, and grow again while all pass.
    """
    op = entries.entries()[name].op
    texts, ready = {}, []
    for dtype, indices in wanted.items():
        every = entries.samples(name, dtype)
        for index in indices:
            trying([(dtype, index)])
            call = _prepared(name, Call.of(dtype, index, op, every[index]))
            texts[call.place] = entries.text(every[index])
            before = _set_aside(name, call)
            if before is None:
                ready.append(call)
            else:
                yield Verdict(dtype, index, before, texts[call.place])
    for call, outcome in _outcomes(name, ready, alone, trying):
        text = "" if outcome.kind is Kind.PASS else texts[call.place]
        yield Verdict(call.dtype, call.index, outcome, text)


def _prepared(name: str, call: Call) -> Call:
    if name in NUMBERS:
        call = call.with_numbers()
    if name in VIEWS:
        call = call.with_views()
    return call.in_whole_numbers() if in_whole_numbers(name, call.dtype) else call


def _outcomes(
    name: str, ready: list[Call], alone: bool, trying: Trying
) -> Iterator[tuple[Call, Outcome]]:
    waiting: list[list[Call]] = []
    size = 1 if alone else LARGEST_BATCH
    while ready or waiting:
        if waiting:
            batch = waiting.pop()
        else:
            size = min(size, LARGEST_BATCH)
            batch, ready = ready[:size], ready[size:]
        trying([(call.dtype, call.index) for call in batch])
        if len(batch) == 1:
            outcome = _alone(name, batch[0])
            size = 4 * size if _goes_in_batches(outcome) and not alone else 1
            yield batch[0], outcome
            continue
        try:
            yield from zip(batch, _together(name, batch), strict=True)
            size = 4 * len(batch)
        except _BatchFailed as failure:
            yield from ((c, failure.settled[c.place]) for c in batch if c.place in failure.settled)
            waiting += _split(batch, failure)
            size = 4 * len(batch) if failure.settled else 1


def _goes_in_batches(outcome: Outcome) -> bool:
    """Return whether samples with this outcome can be judged in batches."""
    missing = outcome.detail.startswith(UnsupportedOpError.__name__)
    return outcome.kind in (Kind.PASS, Kind.RANDOM) or missing


def _split(batch: list[Call], failure: _BatchFailed) -> Iterator[list[Call]]:
    """Yield the named samples alone, the others in halves, or at once if failures are settled."""
    yield from ([call] for call in batch if call.place in failure.at)
    others = [c for c in batch if c.place not in failure.at and c.place not in failure.settled]
    middle = 0 if failure.settled else (len(others) + 1) // 2
    yield from (part for part in (others[:middle], others[middle:]) if part)


def _set_aside(name: str, call: Call) -> Outcome | None:
    """Return the outcome of a sample that cannot be attempted, or None."""
    if any(_not_strided(t) for t in call.tensors):
        return Outcome(Kind.LAYOUT, "takes a tensor that is not strided")
    if call.dtype != "complex64" and any(t.is_complex() for t in call.tensors):
        return Outcome(Kind.COMPLEX)
    try:
        results = call.eager()
    except Exception as cause:
        return Outcome(Kind.EXPORT_FAILED, _line("eager", cause))
    if not results:
        return Outcome(Kind.NO_TENSOR, "returns no tensor and no number")
    if any(_not_strided(r) for r in results):
        return Outcome(Kind.LAYOUT, "returns a tensor that is not strided")
    if not values_are_undefined(name) and _differs_by_seed(call):
        return Outcome(Kind.RANDOM, "eager gives other values with another seed")
    return None


def _differs_by_seed(call: Call) -> bool:
    """Compare several seeds: dropout of one half keeps a single element half of the time."""
    runs = []
    for seed in range(4):
        torch.default_generator.manual_seed(seed)
        # Random entries set the seed themselves, through this name.
        with mock.patch("torch.manual_seed"):
            runs.append(call.eager())
    return any(
        a.shape != b.shape or not torch.equal(_bits(a), _bits(b))
        for run in runs[1:]
        for a, b in zip(runs[0], run, strict=True)
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes, in which NaN equals NaN."""
    plain = tensor.resolve_conj().resolve_neg().flatten()
    # A single element may keep a stride of 4, which counts as contiguous and cannot be viewed.
    return torch.empty(plain.shape, dtype=plain.dtype).copy_(plain).view(torch.uint8)


def _not_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is not torch.strided or tensor.is_nested


def _alone(name: str, call: Call) -> Outcome:
    outcome, replaced = _in_one_way(name, call, rewrite_for_export)
    return _in_the_steps(name, call) if replaced and outcome.kind is Kind.PASS else outcome


def _in_the_steps(name: str, call: Call) -> Outcome:
    """Judge a sample that passed, as exported by torch alone; pass if torch cannot export it."""
    outcome, _ = _in_one_way(name, call, lambda: nullcontext(set()))
    if outcome.kind in (Kind.PASS, Kind.EXPORT_FAILED, Kind.REFUSED):
        return Outcome(Kind.PASS)
    return Outcome(outcome.kind, f"in the documented steps: {outcome.detail}")


def _in_one_way(name: str, call: Call, context: Rewrites) -> tuple[Outcome, set[Any]]:
    """Judge a sample; return the functions that were replaced too."""
    batch = Batch([call])
    try:
        exported, replaced = _exported(batch, context)
    except Exception as cause:
        return Outcome(Kind.EXPORT_FAILED, _line("export", cause)), set()
    return _judged(name, call, batch, exported), replaced


def _judged(name: str, call: Call, batch: Batch, exported: torch.export.ExportedProgram) -> Outcome:
    try:
        decomposed = _decomposed(exported)
    except Exception as cause:
        if isinstance(cause, ConversionError):  # a decomposition of the converter rejects it
            return Outcome(Kind.RANDOM if _draws(exported) else Kind.REFUSED, _line("", cause))
        try:
            exported.run_decompositions()
        except Exception:
            return Outcome(Kind.EXPORT_FAILED, _line("run_decompositions", cause))
        return Outcome(Kind.ERROR, _line("run_decompositions with our table", cause))
    try:
        converter = coreai_torch.TorchConverter().add_exported_program(decomposed)
        program = converter.to_coreai()
    except ConversionError as cause:
        if isinstance(cause, UnsupportedOpError) and _draws(decomposed):
            return Outcome(Kind.RANDOM, _draws(decomposed))
        kind = Kind.ERROR if isinstance(cause, _OUR_FAULT) else Kind.REFUSED
        return Outcome(kind, _line(type(cause).__name__, cause))
    except Exception as cause:
        return Outcome(Kind.ERROR, _line("conversion", cause))
    try:
        got = _run(program, decomposed, batch.tensors)
    except Exception as cause:
        return Outcome(Kind.ERROR, _line("running", cause))
    return _compared(name, call, got)


def _exported(
    batch: Batch, context: Rewrites = rewrite_for_export
) -> tuple[torch.export.ExportedProgram, set[Any]]:
    """Return the exported batch, and the functions of torch that were replaced."""
    with context() as replaced:
        return torch.export.export(batch, batch.tensors), replaced


def _decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Decompose only if the converter requires it, which halves the time of the sweep."""
    try:
        coreai_torch.TorchConverter().add_exported_program(exported)
    except ConversionError:
        return exported.run_decompositions(_table())
    return exported


def _together(name: str, calls: list[Call]) -> list[Outcome]:
    """Return the outcomes of a batch in order, or raise `_BatchFailed`."""
    batch = Batch(calls)
    converter = coreai_torch.TorchConverter()
    try:
        exported, replaced = _exported(batch)
        decomposed = _decomposed(exported)
    except Exception as cause:
        raise _BatchFailed(cause) from cause
    blocked = _blocked(decomposed, converter)
    if blocked:
        raise _BatchFailed(settled=blocked)
    try:
        program = converter.add_exported_program(decomposed).to_coreai()
        got = _run(program, decomposed, batch.tensors)
    except Exception as cause:
        raise _BatchFailed(cause) from cause
    outcomes = []
    for call in calls:
        count = len(call.eager())
        outcome = _compared(name, call, got[:count])
        again = replaced and outcome.kind is Kind.PASS
        outcomes.append(_in_the_steps(name, call) if again else outcome)
        got = got[count:]
    return outcomes


def _blocked(
    exported: torch.export.ExportedProgram, converter: coreai_torch.TorchConverter
) -> dict[str, Outcome]:
    """Return the samples of a batch with an op without a lowering, which are rejected."""
    missing: dict[str, set[Any]] = {}
    for node in graph_calls(exported.graph_module):
        place = module_path(node).partition(".")[0]
        if place and node.target is not operator.getitem and not converter._supports(node):
            missing.setdefault(place, set()).add(node.target)
    return {place: _refusal(targets) for place, targets in missing.items()}


def _refusal(targets: set[Any]) -> Outcome:
    names = ", ".join(sorted(map(target_name, targets)))
    if any(_is_random(t) for t in targets):
        return Outcome(Kind.RANDOM, names)
    return Outcome(Kind.REFUSED, f"UnsupportedOpError: no lowering for {names}")


@functools.cache
def _table() -> dict[Any, Any]:
    return coreai_torch.get_decomp_table()


def _draws(exported: torch.export.ExportedProgram) -> str:
    """Return the names of the random ops of a program."""
    targets = {node.target for node in graph_calls(exported.graph_module)}
    return ", ".join(sorted(target_name(t) for t in targets if _is_random(t)))


def _is_random(target: Any) -> bool:
    is_overload = isinstance(target, torch._ops.OpOverload)
    return is_overload and torch.Tag.nondeterministic_seeded in target.tags


def _run(
    program: Any, exported: torch.export.ExportedProgram, tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    program.optimize()
    signature = exported.graph_signature
    given = dict(zip(signature.user_inputs, tensors, strict=True))
    written = set(signature.user_inputs_to_mutate.values())
    feeds = {name: tensor for name, tensor in given.items() if name not in written}
    states = {name: tensor for name, tensor in given.items() if name in written}
    return list(runtime.run(program, feeds, states).values())


def _compared(name: str, call: Call, got: Sequence[torch.Tensor]) -> Outcome:
    want = [w.to(narrow(w.dtype)) for w in call.eager()]
    if len(got) != len(want):
        return Outcome(Kind.WRONG, f"{len(got)} results, not {len(want)}")
    got, want = settled(name, call, got), settled(name, call, want)
    pairs = zip(got, want, strict=True)
    differences = {n: d for n, (g, w) in enumerate(pairs) if (d := _difference(name, g, w))}
    true = truth(call) if differences else None
    if true is not None:
        true = settled(name, call, true)
    for number, difference in differences.items():
        if true is None or not no_further_than_eager(got[number], want[number], true[number]):
            return Outcome(Kind.WRONG, f"result {number}: {difference}")
    return Outcome(Kind.PASS)


def _difference(name: str, got: torch.Tensor, want: torch.Tensor) -> str:
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
    if values_are_undefined(name):
        return ""
    relative, absolute = tolerance(name, want.dtype)
    try:
        want = want.resolve_conj().resolve_neg()
        torch.testing.assert_close(got, want, rtol=relative, atol=absolute, equal_nan=True)
    except AssertionError as found:
        return " ".join(str(found).split())
    return ""


def _line(stage: str, cause: BaseException) -> str:
    """Return the first line of an error, with its stage and type."""
    text = " ".join(str(cause).strip().split("\n  at  ")[0].split()) or "no message"
    named = stage if stage == type(cause).__name__ else f"{stage}: {type(cause).__name__}"
    return f"{named}: {text[:300]}"
