"""Ops on a stacked cache `[layers, 1, heads, slots, width]`, and their lowerings.

torch writes rows of one layer as a scatter into a copy of the layer, and reads them as two slices
of the complete layer. These ops become one `slice_update` and one `slice`, whose cost does not
depend on the number of slots. The runtime (coreai-core 1.0.0b3) copies the state at each
`slice_update` of it, so all layers are written at once, at the end. The fake implementations
compare no sizes, so the export records no bounds on them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...converter import TorchConverter
from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Dim, Value
from ...lowering import Ctx, Number

NAMESPACE = "coreai_torch_llm"


@torch.library.custom_op(f"{NAMESPACE}::write_rows", mutates_args=())  # type: ignore[untyped-decorator]  # mypy does not follow torch
def write_rows(cache: Tensor, rows: Tensor, layer: int, start: int, end: int) -> Tensor:
    """Return the cache with `rows` in the slots from `start` to `end`, from a layer on."""
    new = cache.clone()
    count, _, heads, _, width = rows.shape
    new[layer : layer + count, :, :heads, start:end, :width] = rows
    return new


@write_rows.register_fake  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _write_rows_shape(cache: Tensor, rows: Tensor, layer: int, start: int, end: int) -> Tensor:
    return torch.empty_like(cache)


@torch.library.custom_op(f"{NAMESPACE}::join_rows", mutates_args=())  # type: ignore[untyped-decorator]  # mypy does not follow torch
def join_rows(cache: Tensor, rows: Tensor, layer: int, start: int, end: int) -> Tensor:
    """Return the slots before `end` of a layer, with `rows` in those from `start` on."""
    _, heads, _, width = rows.shape
    joined = cache[layer, :, :heads, :end, :width].clone()
    joined[:, :, start:end] = rows
    return joined


@join_rows.register_fake  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _join_rows_shape(cache: Tensor, rows: Tensor, layer: int, start: int, end: int) -> Tensor:
    return cache.new_empty(cache.shape[1], rows.shape[1], end, rows.shape[3])


@torch.library.custom_op(f"{NAMESPACE}::read_rows", mutates_args=())  # type: ignore[untyped-decorator]  # mypy does not follow torch
def read_rows(cache: Tensor, layer: int, end: int, heads: int, width: int) -> Tensor:
    """Return the slots before `end` of a layer, `[1, heads, end, width]`."""
    return cache[layer, :, :heads, :end, :width].clone()


@read_rows.register_fake  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _read_rows_shape(cache: Tensor, layer: int, end: int, heads: int, width: int) -> Tensor:
    return cache.new_empty(cache.shape[1], heads, end, width)


@torch.library.custom_op(f"{NAMESPACE}::new_positions", mutates_args=())  # type: ignore[untyped-decorator]  # mypy does not follow torch
def new_positions(positions: Tensor, start: int, end: int) -> Tensor:
    """Return the positions `[1, end - start]` of the new tokens."""
    return positions[:, start:end].clone()


@new_positions.register_fake  # type: ignore[untyped-decorator]  # mypy does not follow torch
def _new_positions_shape(positions: Tensor, start: int, end: int) -> Tensor:
    return positions.new_empty(positions.shape[0], end - start)


def register_cache_ops(converter: TorchConverter) -> None:
    """Register the lowerings of the ops in a converter."""
    converter.register_torch_lowering(f"{NAMESPACE}::write_rows")(_lower_write)
    converter.register_torch_lowering(f"{NAMESPACE}::join_rows")(_lower_join)
    converter.register_torch_lowering(f"{NAMESPACE}::read_rows")(_lower_read)
    converter.register_torch_lowering(f"{NAMESPACE}::new_positions")(_lower_positions)
    converter.register_torch_lowering("coreai_torch::repeat_heads")(_lower_repeat)


def _lower_write(
    ctx: Ctx, cache: Value, rows: Value, layer: int, start: Number, end: Number
) -> Value:
    count, _, heads, _, width = map(int, rows.type.shape)
    starts = [layer, 0, 0, _position(start), 0]
    ends = [layer + count, 1, heads, _position(end), width]
    return cai.slice_update(cache, rows, starts, ends, [1] * 5)


def _lower_join(
    ctx: Ctx, cache: Value, rows: Value, layer: int, start: Number, end: Number
) -> Value:
    _, heads, _, width = map(int, rows.type.shape)
    old = _lower_read(ctx, cache, layer, end, heads, width)
    starts, ends = [0, 0, _position(start), 0], [1, heads, _position(end), width]
    return cai.slice_update(old, rows, starts, ends, [1] * 4)


def _lower_read(ctx: Ctx, cache: Value, layer: int, end: Number, heads: int, width: int) -> Value:
    ends = [layer + 1, 1, heads, _position(end), width]
    return cai.shrink_dims(cai.slice_(cache, [layer, 0, 0, 0, 0], ends), [0])


def _lower_positions(ctx: Ctx, positions: Value, start: Number, end: Number) -> Value:
    return cai.slice_(positions, [0, _position(start)], [1, _position(end)])


def _lower_repeat(ctx: Ctx, rows: Value, copies: int) -> Value:
    batch, heads, length, width = cai.sizes(rows)
    spread = cai.broadcast_to(cai.expand_dims(rows, [2]), [batch, heads, copies, length, width])
    return cai.reshape(spread, [batch, shapes.mul(heads, copies), length, width])


def _position(given: Any) -> Dim:
    return given if isinstance(given, Value) else int(given)
