"""Attention over caches `[layers, 1, channels, 1, slots]`, one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from ....converter import TorchConverter
from ....ir import dialect as cai
from ....ir import shapes
from ....ir.dialect import Value
from ....lowering import Ctx
from .layout import BY_TOKEN, Placed
from .names import MASKED

_WRITE, _ATTEND = "coreai_torch_llm::write_columns", "coreai_torch_llm::attend_by_head"


@torch.library.custom_op(_WRITE, mutates_args=())  # type: ignore[untyped-decorator]  # mypy does not follow torch
def write_columns(cache: Tensor, columns: Tensor, layer: int, step: Tensor) -> Tensor:
    """Return the cache with `[1, channels, 1, tokens]` in the slots from `step` of a layer."""
    new, start = cache.clone(), int(step)
    new[layer, :, :, :, start : start + columns.shape[3]] = columns
    return new


@write_columns.register_fake  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _write_shape(cache: Tensor, columns: Tensor, layer: int, step: Tensor) -> Tensor:
    return torch.empty_like(cache)


@torch.library.custom_op(_ATTEND, mutates_args=())  # type: ignore[untyped-decorator]  # mypy does not follow torch
def attend_by_head(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, layer: int, width: int
) -> Tensor:
    """Return `[1, heads, width, tokens]` for scaled queries, which share heads of the caches.

    The mask is `[1, slots, 1, tokens]`.
    """
    heads, own = queries.shape[1], queries.shape[2]
    shared = heads // (keys.shape[2] // own)
    outputs = []
    for head in range(heads):
        group = head // shared
        key = keys[layer, :, group * own : (group + 1) * own].permute(0, 3, 2, 1)
        scores = torch.matmul(key.transpose(1, 2), queries[:, head : head + 1])
        weights = torch.softmax(scores + mask.transpose(1, 2), 2)
        value = values[layer, :, group * width : (group + 1) * width].transpose(1, 2)
        outputs.append(torch.matmul(value, weights))
    return torch.cat(outputs, 1)


@attend_by_head.register_fake  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _attend_shape(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, layer: int, width: int
) -> Tensor:
    return queries.new_empty(1, queries.shape[1], width, queries.shape[3])


def register_ops(converter: TorchConverter) -> None:
    """Register the lowerings of both ops in a converter."""
    converter.register_torch_lowering(_WRITE)(_lower_write)
    converter.register_torch_lowering(_ATTEND)(_lower_attend)


def _lower_write(ctx: Ctx, cache: Value, columns: Value, layer: int, step: Value) -> Value:
    channels, tokens = int(columns.type.shape[1]), shapes.size(columns, 3)
    start = shapes.scalar(step)
    end = shapes.add(start, tokens)
    return cai.slice_update(
        cache,
        cai.expand_dims(columns, [0]),
        [layer, 0, 0, 0, start],
        [layer + 1, 1, channels, 1, end],
        [1] * 5,
    )


def _lower_attend(
    ctx: Ctx, queries: Value, keys: Value, values: Value, mask: Value, layer: int, width: int
) -> Value:
    _, heads, own, tokens = map(int, queries.type.shape)
    slots = int(keys.type.shape[4])
    groups = int(keys.type.shape[2]) // own
    rows = [_group(keys, layer, group, own) for group in range(groups)]
    columns = [_group(values, layer, group, width) for group in range(groups)]
    outputs = []
    for head in range(heads):
        group = head * groups // heads
        query = cai.slice_axis(queries, 1, head, head + 1)
        scores = cai.matmul(cai.transpose(rows[group], [0, 1, 3, 2]), query)
        scores = cai.add(cai.reshape(scores, [1, slots, 1, tokens]), mask)
        weights = cai.reshape(cai.softmax(scores, 1), [1, 1, slots, tokens])
        outputs.append(cai.matmul(columns[group], weights))
    return cai.concat(1, outputs)


def _group(cache: Value, layer: int, group: int, width: int) -> Value:
    """Return one head of a layer, `[1, 1, width, slots]`."""
    slots = int(cache.type.shape[4])
    start = group * width
    part = cai.slice_(cache, [layer, 0, start, 0, 0], [layer + 1, 1, start + width, 1, slots])
    return cai.reshape(part, [1, 1, width, slots])


class Attention:
    """Keys, values and mask of one call; each layer replaces the caches."""

    def __init__(
        self, keys: Tensor, values: Tensor, step: Tensor, mask: Tensor, positions: Tensor
    ) -> None:
        self.keys, self.values, self.step = keys, values, step
        self.positions = positions
        self.masks = {0: mask}

    def write(self, keys: Placed, values: Placed, layer: int) -> None:
        """Store the new keys and values of a layer."""
        self.keys = write_columns(self.keys, keys.channels, layer, self.step)
        self.values = write_columns(self.values, values.channels, layer, self.step)

    def attend(self, query: Placed, layer: int, scaling: float, width: int, window: int) -> Placed:
        """Return `[1, tokens, heads, width]` for queries `[1, heads, tokens, width]`."""
        queries = query.data * scaling
        mask = self._mask(window)
        return Placed(attend_by_head(queries, self.keys, self.values, mask, layer, width), BY_TOKEN)

    def _mask(self, window: int) -> Tensor:
        """Return the mask `[1, slots, 1, tokens]`, with the keys before a window hidden."""
        if window not in self.masks:
            mask = self.masks[0]
            slots = torch.arange(mask.shape[1], dtype=torch.int32)
            is_old = slots[:, None] <= self.positions[None, :] - window
            self.masks[window] = torch.where(is_old[None, :, None], MASKED, mask)
        return self.masks[window]
