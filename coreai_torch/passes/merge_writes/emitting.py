"""Lower writes that a pass merged, as concatenations of the written parts and of the rest.

A write that leaves the rest in more pieces than there are writes is one `slice_update`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.fx as fx

from ...ir import dialect as cai
from ...ir.dialect import Value
from ..pass_graph import Lower, Values

Bounds = tuple[tuple[int, int], ...]  # first and last + 1 along each axis


@dataclass(frozen=True)
class Span:
    """The positions along one axis that a view has; `keep` is false if the view drops the axis."""

    start: int
    count: int
    step: int = 1
    keep: bool = True

    def of(self, inner: Span) -> Span:
        """Return the positions of `inner`, which counts the positions of this span."""
        return Span(
            self.start + inner.start * self.step, inner.count, self.step * inner.step, inner.keep
        )

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return self.start + (self.count - 1) * self.step + 1


@dataclass(frozen=True)
class Write:
    """A write of `source` to a part of `base`: a span for each axis of `base`."""

    base: fx.Node
    source: fx.Node
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class MergedWrites:
    """Writes that follow each other, in order; each of `nodes` returns the result of one."""

    base: fx.Node
    writes: list[Write]
    nodes: list[fx.Node]
    layer: None = None

    def __str__(self) -> str:
        return f"{len(self.writes)} writes to %{self.base.name}"

    @property
    def reads(self) -> list[fx.Node]:
        """The tensor and what is written to it."""
        return [self.base, *(write.source for write in self.writes)]

    def emit(self, node: fx.Node, values: Values, lower: Lower) -> Value:
        """Return the tensor after all writes."""
        known = values.nodes[self.base]
        fake = self.base.meta["val"]
        base = _Tensor(known if isinstance(known, torch.Tensor) else values.value(self.base))
        pieces = [
            _Piece(_fitted(values.value(write.source), write.spans, fake.dtype), write.spans)
            for write in self.writes
        ]
        return _assembled(base, tuple((0, size) for size in fake.shape), pieces)


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

    @property
    def is_known(self) -> bool:
        return isinstance(self.stored, torch.Tensor)

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
    axis, cuts = max(
        ((axis, _cuts(pieces, axis, bounds[axis])) for axis in range(len(bounds))),
        key=lambda found: len(found[1]),
    )
    by_start: dict[int, list[_Piece]] = {}
    for piece in pieces:
        by_start.setdefault(piece.spans[axis].start, []).append(piece)
    rest = 0 if base.is_known else sum(cut[0] not in by_start for cut in cuts)
    if len(cuts) < 2 or rest >= len(pieces):
        return _updated(base.within(bounds), bounds, pieces)
    parts = [
        _assembled(base, (*bounds[:axis], cut, *bounds[axis + 1 :]), by_start.get(cut[0], []))
        for cut in cuts
    ]
    return cai.concat(axis, parts)


def _cuts(pieces: Sequence[_Piece], axis: int, whole: tuple[int, int]) -> list[tuple[int, int]]:
    """Cut an axis so that each piece is in one segment; no cuts if pieces overlap in part."""
    ranges = sorted({(piece.spans[axis].start, piece.spans[axis].end) for piece in pieces})
    cuts: list[tuple[int, int]] = []
    reached = whole[0]
    for start, end in ranges:
        if start < reached:
            return []
        if start > reached:
            cuts.append((reached, start))
        cuts.append((start, end))
        reached = end
    return [*cuts, (reached, whole[1])] if reached < whole[1] else cuts


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
