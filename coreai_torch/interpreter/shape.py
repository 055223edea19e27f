"""Ops that move elements or change the shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..asset.reading import Op
from . import carriers
from .registry import Int, Ints, Result, Tensor, implements, plans


def moves(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function that only moves elements, for every dtype."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        plans(*names)(lambda op: carriers.moved(function, op.types[0].dtype))
        return function

    return register


@moves("reshape")
def _reshape(x: Tensor, shape: Ints) -> Tensor:
    if -1 in shape and x.numel() == 0:  # torch rejects it as ambiguous
        known = math.prod(s for s in shape if s != -1)
        shape = [0 if s == -1 and known else max(s, 0) for s in shape]
    return x.reshape(shape)


@moves("transpose")
def _transpose(x: Tensor, permutation: Ints) -> Tensor:
    return x.permute(permutation)


@moves("expand_dims")
def _expand_dims(x: Tensor, axes: Ints) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


@moves("shrink_dims")
def _shrink_dims(x: Tensor, axes: Ints) -> Tensor:
    return x.squeeze(tuple(axes))


@moves("broadcast_to")
def _broadcast_to(x: Tensor, shape: Ints) -> Tensor:
    return x.expand(shape)


@moves("broadcast_in_dims")
def _broadcast_in_dims(x: Tensor, sizes: Ints, axes: Ints) -> Tensor:
    shape = list(x.shape)
    for size, axis in zip(sizes, axes, strict=True):
        shape[axis] = size
    return x.expand(shape)


@plans("broadcast_shapes")
def _broadcast_shapes(op: Op) -> Callable[..., Result]:
    def shapes(a: Tensor, b: Tensor) -> Tensor:
        sizes = torch.broadcast_shapes(a.tolist(), b.tolist())
        return torch.tensor(sizes, dtype=op.types[0].dtype, device=a.device)

    return shapes


@plans("get_shape")
def _get_shape(op: Op) -> Callable[..., Result]:
    dtype = op.types[0].dtype
    return lambda x: torch.tensor(x.shape, dtype=dtype, device=x.device)


@plans("concat")
def _concat(op: Op) -> Callable[..., Result]:
    def concat(axis: Int, *parts: Tensor) -> Tensor:
        return torch.cat(parts, axis)

    return carriers.moved(concat, op.types[0].dtype)


@plans("split")
def _split(op: Op) -> Callable[..., Result]:
    is_whole = len(op.results) == 1

    def parts(x: Tensor, each: int | list[int], axis: int) -> Result:
        found: Sequence[Tensor] = x.split(each, axis)
        return found[0] if is_whole else found

    def size(x: Tensor, each: Int, axis: Int) -> Result:
        return parts(x, each, axis)

    def sections(x: Tensor, each: Ints, axis: Int) -> Result:
        return parts(x, each, axis)

    return carriers.moved(sections if op.operand_types[1].shape else size, op.types[0].dtype)


@moves("tile")
def _tile(x: Tensor, repeats: Ints) -> Tensor:
    return x.tile(repeats)


@moves("reverse")
def _reverse(x: Tensor, axes: Ints) -> Tensor:
    return x.flip(axes) if axes else x


def _box(x: Tensor, starts: list[int], ends: list[int], strides: list[int]) -> tuple[Any, ...]:
    """Return the index of a slice along each axis, with the rules of Python.

    With a negative stride an end of -1 means before the first element, not the last element.
    """
    taken: list[Any] = []
    for size, start, end, stride in zip(x.shape, starts, ends, strides, strict=True):
        if stride > 0:
            taken.append(slice(start, end, stride))
            continue
        first = min(max(start + size if start < 0 else start, 0), size - 1)
        last = min(max(end + size if end < -1 else end, -1), size - 1)
        taken.append(
            torch.arange(first, last, stride, device=x.device) if first > last else slice(0, 0)
        )
    return tuple(taken)


def _taken(x: Tensor, box: tuple[Any, ...]) -> Tensor:
    for axis, along in enumerate(box):
        here = (slice(None),) * axis
        x = x.index_select(axis, along) if isinstance(along, torch.Tensor) else x[(*here, along)]
    return x


@moves("slice")
def _slice(x: Tensor, starts: Ints, ends: Ints, strides: Ints) -> Tensor:
    box = _box(x, starts, ends, strides)
    return x[box] if min(strides, default=1) > 0 else _taken(x, box)


@moves("slice_update")
def _slice_update(x: Tensor, starts: Ints, ends: Ints, strides: Ints, update: Tensor) -> Tensor:
    box = _box(x, starts, ends, strides)
    made = x.clone(memory_format=torch.contiguous_format)
    if min(strides, default=1) > 0:
        made[box] = update
        return made
    places = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    made.view(-1)[_taken(places, box).reshape(-1)] = update.reshape(-1)
    return made


_MODES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "replicate": lambda at, size: at.clamp(0, size - 1),
    "reflect": lambda at, size: (size - 1) - ((size - 1) - at.abs()).abs(),
    "symmetric": lambda at, size: torch.where(
        at < 0, -1 - at, torch.where(at >= size, 2 * size - 1 - at, at)
    ),
    "circular": lambda at, size: at % size,
}


@plans("pad")
def _pad(op: Op) -> Callable[..., Result]:
    mode = op.attributes.get("padding_mode", "constant")

    def constant(x: Tensor, padding: Ints, value: Tensor) -> Tensor:
        sizes = [s + b + a for s, b, a in zip(x.shape, padding[::2], padding[1::2], strict=True)]
        made = value.expand(sizes).clone()
        made[tuple(slice(b, b + s) for s, b in zip(x.shape, padding[::2], strict=True))] = x
        return made

    def mirrored(x: Tensor, padding: Ints, value: Tensor) -> Tensor:
        for axis, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
            if before or after:
                at = torch.arange(-before, x.shape[axis] + after, device=x.device)
                x = x.index_select(axis, _MODES[mode](at, x.shape[axis]))
        return x

    return carriers.moved(constant if mode == "constant" else mirrored, op.types[0].dtype)


@implements("range")
def _range(start: Tensor, stop: Tensor, step: Tensor) -> Tensor:
    first, last, by = start.item(), stop.item(), step.item()
    if not by:
        raise ZeroDivisionError("the step of a range is zero")
    if not start.dtype.is_floating_point:
        count = len(range(first, last, by))
        numbers = torch.arange(count, dtype=torch.int64, device=start.device)
        return (first + numbers * by).to(start.dtype)
    count = max(0, math.ceil((last - first) / by))
    steps = torch.arange(count, dtype=torch.float64, device=start.device)
    return (first + steps * by).to(start.dtype)
