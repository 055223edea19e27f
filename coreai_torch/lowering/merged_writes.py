"""Lower writes that a pass merged.

Many writes become concatenations of the written parts and the rest of the tensor. Few writes are
written one after the other: a patch of 64 x 64 in an image of 3 x 480 x 640 takes 3 ms, and 47 ms
as concatenations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir import dialect as cai
from ..ir.dialect import Value
from ..passes.graph import MergedWrites, Span
from .binding import Call
from .cases import Case
from .entry import BUILT_IN, LowerSubgraph

Bounds = tuple[tuple[int, int], ...]  # first and last + 1 along each axis


@dataclass(frozen=True)
class MergedWritesLowering:
    """Lowers the last of several writes to a tensor; nothing reads the results of the others."""

    target: Any
    merged: MergedWrites
    origin: str = BUILT_IN
    cases: Sequence[Case] = ()

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Value:
        """Return the tensor after all writes."""
        scope, merged = call.scope, self.merged
        known = scope.nodes[merged.base]
        fake = merged.base.meta["val"]
        base = _Tensor(known if isinstance(known, torch.Tensor) else scope.value(merged.base))
        pieces = [
            _Piece(_fitted(scope.value(write.source), write.spans, fake.dtype), write.spans)
            for write in merged.writes
        ]
        bounds = tuple((0, size) for size in fake.shape)
        if _is_written_faster(pieces, fake.numel()):
            return _updated(base.within(bounds), bounds, pieces)
        return _assembled(base, bounds, pieces)


def _fitted(source: Value, spans: Sequence[Span], dtype: torch.dtype) -> Value:
    """Return a source with the dtype of the base and an axis for each of its axes."""
    cast = cai.cast(source, dtype)
    kept = [span.count for span in spans if span.keep]
    if list(cast.type.shape) != kept:
        cast = cai.broadcast_to(cast, kept)
    dropped = [axis for axis, span in enumerate(spans) if not span.keep]
    return cai.expand_dims(cast, dropped) if dropped else cast


@dataclass(frozen=True)
class _Tensor:
    """A tensor, a constant or computed at run time, whose first element is at `origin`."""

    stored: torch.Tensor | Value
    origin: Sequence[int] | None = None

    def within(self, bounds: Bounds) -> Value:
        origin = self.origin or [0] * len(bounds)
        starts = [low - first for (low, _), first in zip(bounds, origin, strict=True)]
        ends = [high - first for (_, high), first in zip(bounds, origin, strict=True)]
        if isinstance(self.stored, torch.Tensor):
            part = self.stored[tuple(map(slice, starts, ends))]
            return cai.tensor_constant(part.detach())
        if ends == list(self.stored.type.shape) and not any(starts):
            return self.stored
        return cai.slice_(self.stored, starts, ends, [1] * len(starts))


@dataclass(frozen=True)
class _Piece:
    """A value and where it is written."""

    value: Value
    spans: tuple[Span, ...]

    def covers(self, bounds: Bounds) -> bool:
        return all(
            span.start == low and span.end == high and span.step == 1
            for span, (low, high) in zip(self.spans, bounds, strict=True)
        )


# Times of coreai-core 1.0.0b3 on x86 in ns: of an op, and of each element that is copied by a write
# as a part of the whole tensor, written, sliced or concatenated.
_OP, _COPIED, _WRITTEN, _SLICED, _JOINED = 2000, 0.3, 12, 15, 30


def _is_written_faster(pieces: Sequence[_Piece], total: int) -> bool:
    """Return whether to write pieces one after the other is faster than to concatenate them.

    Written elements are concatenated twice, with each other and with the rest: 128 rows of 8,192 in
    a tensor twice as large take 136 ms, and 53 ms if they are written.
    """
    written = sum(math.prod(span.count for span in piece.spans) for piece in pieces)
    writes = len(pieces) * (_OP + _COPIED * total) + _WRITTEN * written
    rest = max(total - written, 0)
    return writes < len(pieces) * _OP + _JOINED * (total + written) + _SLICED * rest


def _assembled(base: _Tensor, bounds: Bounds, pieces: Sequence[_Piece]) -> Value:
    """Return the part of a tensor within `bounds` after writing `pieces`, which are inside."""
    for place in reversed(range(len(pieces))):
        if pieces[place].covers(bounds):
            base = _Tensor(pieces[place].value, [low for low, _ in bounds])
            pieces = pieces[place + 1 :]
            break
    if not pieces:
        return base.within(bounds)
    for axis in reversed(range(len(bounds))):
        if _is_interleaved(pieces, axis, bounds):
            return _interleaved(pieces, axis, bounds)
    segments = max(
        (_segments(pieces, axis, bounds[axis]) for axis in range(len(bounds))),
        key=lambda found: len(found[1]),
    )
    axis, cuts = segments
    if len(cuts) < 2:
        return _updated(base.within(bounds), bounds, pieces)
    by_start: dict[int, list[_Piece]] = {}
    for piece in pieces:
        by_start.setdefault(piece.spans[axis].start, []).append(piece)
    parts = [
        _assembled(base, (*bounds[:axis], cut, *bounds[axis + 1 :]), by_start.get(cut[0], []))
        for cut in cuts
    ]
    return cai.concat(axis, parts)


def _segments(
    pieces: Sequence[_Piece], axis: int, whole: tuple[int, int]
) -> tuple[int, list[tuple[int, int]]]:
    """Cut an axis so that each piece is in one segment; no cuts if pieces overlap in part."""
    ranges = sorted({(piece.spans[axis].start, piece.spans[axis].end) for piece in pieces})
    cuts: list[tuple[int, int]] = []
    reached = whole[0]
    for start, end in ranges:
        if start < reached:
            return axis, []
        if start > reached:
            cuts.append((reached, start))
        cuts.append((start, end))
        reached = end
    return axis, [*cuts, (reached, whole[1])] if reached < whole[1] else cuts


def _updated(x: Value, bounds: Bounds, pieces: Sequence[_Piece]) -> Value:
    """Write pieces one after the other."""
    for piece in pieces:
        starts = [s.start - low for s, (low, _) in zip(piece.spans, bounds, strict=True)]
        ends = [s.end - low for s, (low, _) in zip(piece.spans, bounds, strict=True)]
        x = cai.slice_update(x, piece.value, starts, ends, [s.step for s in piece.spans])
    return x


def _is_interleaved(pieces: Sequence[_Piece], axis: int, bounds: Bounds) -> bool:
    """Return whether pieces write every n-th position along `axis`, and all of them together."""
    step, (low, high) = len(pieces), bounds[axis]
    if step < 2 or (high - low) % step:
        return False
    starts = {piece.spans[axis].start - low for piece in pieces}
    return starts == set(range(step)) and all(
        span.step == step and span.count * step == high - low
        if place == axis
        else (span.start, span.end, span.step) == (*bounds[place], 1)
        for piece in pieces
        for place, span in enumerate(piece.spans)
    )


def _interleaved(pieces: Sequence[_Piece], axis: int, bounds: Bounds) -> Value:
    ordered = sorted(pieces, key=lambda piece: piece.spans[axis].start)
    stacked = cai.concat(axis + 1, [cai.expand_dims(p.value, [axis + 1]) for p in ordered])
    return cai.reshape(stacked, [high - low for low, high in bounds])
