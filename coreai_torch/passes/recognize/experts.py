"""Recognize products with the weights of chosen experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ...fx.editing import Writer
from ...torch_compat import aten
from . import composites
from .pattern import (
    Match,
    Mismatch,
    Surroundings,
    arguments,
    dtype_of,
    is_call,
    is_view,
    operands,
    rank_of,
    same_sizes,
    shape_of,
    through,
)

COMPOSITE = "gather_mm"
ANCHORS = (
    aten.bmm.default,
    aten.matmul.default,
    aten.index_select.default,
    aten._grouped_mm.default,
    "transformers::grouped_mm_fallback",  # by name: the library may not be installed
)


def match(anchor: fx.Node, around: Surroundings) -> Match | None:
    """Return the product of an operand with weights that are selected by index or grouped."""
    given = arguments(anchor)
    if "offs" in given:
        return _grouped(anchor, given)
    if is_call(anchor, aten.index_select.default):
        return _chosen(anchor, around)
    left, right = given["self"], given.get("mat2", given.get("other"))
    for side, operand in ((0, left), (1, right)):
        picked = _Picked.of(operand)
        if picked is None or rank_of(picked.weight) < 3:
            continue
        if through(picked.weight) not in around.weights:
            raise Mismatch(f"%{picked.weight.name}, which is indexed, is not a weight")
        others = (right, left)[side]
        return Match(anchor, picked.inside, _writer(picked, others, side))
    return None


@dataclass(frozen=True)
class _Picked:
    """Matrices of a weight, selected along its first axis, possibly transposed."""

    weight: fx.Node
    indices: fx.Node
    transposed: bool
    inside: tuple[fx.Node, ...]

    @classmethod
    def of(cls, node: Any) -> _Picked | None:
        node = through(node)
        inside: tuple[fx.Node, ...] = (node,)
        transposed = _is_transposed(node)
        if transposed:
            node = through(arguments(node)["self"])
            inside = (*inside, node)
        if is_call(node, aten.index.Tensor):
            given = arguments(node)
            indices = given["indices"]
        elif is_call(node, aten.index_select.default) and arguments(node)["dim"] == 0:
            given = arguments(node)
            indices = [given["index"]]
        else:
            return None
        if len(indices) != 1 or dtype_of(indices[0]) not in (torch.int32, torch.int64):
            return None
        return cls(given["self"], indices[0], transposed, inside)


def _is_transposed(node: Any) -> bool:
    """Whether a node swaps the last two axes of another one."""
    if not is_call(node, aten.permute.default):
        return False
    rank = rank_of(node)
    axes = [axis % rank for axis in arguments(node)["dims"]]
    return axes == [*range(rank - 2), rank - 1, rank - 2]


def _exchanged(writer: Writer, node: fx.Node) -> fx.Node:
    rank = rank_of(node)
    return writer.call(aten.permute.default, node, [*range(rank - 2), rank - 1, rank - 2])


def _writer(picked: _Picked, other: fx.Node, side: int) -> Callable[[Writer], fx.Node]:
    """Keep the layout of the weights: for a product with `wᵀ`, compute the transpose."""

    def write(writer: Writer) -> fx.Node:
        at_left = (side == 0) != picked.transposed
        plain = _exchanged(writer, other) if picked.transposed else other
        factors = (picked.weight, plain) if at_left else (plain, picked.weight)
        indices = (picked.indices, None) if at_left else (None, picked.indices)
        result = writer.call(composites.gather_mm, *factors, *indices)
        return _exchanged(writer, result) if picked.transposed else result

    return write


def _grouped(node: fx.Node, given: dict[str, Any]) -> Match:
    """`input[n] @ weight[e]`, where `offs[e]` is the row after the last one of expert `e`."""
    rows = given.get("input", given.get("self"))
    weight, offs = given.get("weight", given.get("mat2")), given["offs"]
    if rows is None or rank_of(rows) != 2 or rank_of(weight) != 3 or offs is None:
        raise Mismatch("the rows of the weights are grouped, not those of the input")
    if given.get("bias") is not None or given.get("out_dtype") not in (None, dtype_of(rows)):
        raise Mismatch("it has a bias, or another dtype for the result")

    def write(writer: Writer) -> fx.Node:
        experts = _experts(writer, rows, offs)
        count = shape_of(weight)[0]
        known = writer.call(aten.clamp.default, experts, None, count - 1)
        product = _product(writer, rows, weight, known)
        inside = writer.call(aten.lt.Scalar, experts, count)
        column = writer.call(aten.unsqueeze.default, inside, -1)
        return writer.call(aten.where.self, column, product, writer.filled(product, [], 0.0))

    return Match(node, (), write)


def _chosen(node: fx.Node, around: Surroundings) -> Match | None:
    """Row `n` of `rows @ weight[e]`, picked from the products of all rows with all experts."""
    given = arguments(node)
    flat, place = given["self"], operands(given["index"], aten.add.Tensor)
    every = through(arguments(flat)["self"]) if is_view(flat) else None
    factors = operands(every, aten.matmul.default)
    if given["dim"] != 0 or place is None or factors is None:
        return None
    rows, weight = factors
    block = operands(place[0], aten.mul.Tensor)
    if rank_of(rows) != 2 or rank_of(weight) != 3 or block is None:
        return None
    count, experts, width = shape_of(every)[1], shape_of(weight)[0], shape_of(weight)[2]
    fits = same_sizes(shape_of(flat), (experts * count, width)) and _is_size(block[1], count)
    if not fits or not _counts_to(place[1], count) or through(weight) not in around.weights:
        return None
    inside = [flat, every, given["index"], place[0]]
    return Match(node, inside, lambda writer: _product(writer, rows, weight, block[0]))


def _is_size(given: Any, size: Any) -> bool:
    return same_sizes([given.meta["val"] if isinstance(given, fx.Node) else given], [size])


def _counts_to(node: Any, size: Any) -> bool:
    if not is_call(node, aten.arange.start_step):
        return False
    given = arguments(node)
    return given["start"] == 0 and given["step"] == 1 and _is_size(given["end"], size)


def _experts(writer: Writer, rows: fx.Node, offs: fx.Node) -> fx.Node:
    """Return the expert of each row: the number of groups that end at or before it."""
    count = writer.size(rows, 0)
    options = {"dtype": torch.int64, "device": offs.meta["val"].device}
    row = writer.call(aten.arange.start_step, 0, count, **options)
    after = writer.call(aten.ge.Tensor, writer.call(aten.unsqueeze.default, row, -1), offs)
    return writer.call(aten.sum.dim_IntList, after, [-1])


def _product(writer: Writer, rows: fx.Node, weight: fx.Node, experts: fx.Node) -> fx.Node:
    weight = through(weight)
    if _is_transposed(weight):
        stored = arguments(weight)["self"]
        columns = writer.call(aten.unsqueeze.default, rows, -1)
        product = writer.call(composites.gather_mm, stored, columns, experts, None)
        return writer.call(aten.squeeze.dims, product, [-1])
    matrices = writer.call(aten.unsqueeze.default, rows, 1)
    product = writer.call(composites.gather_mm, matrices, weight, None, experts)
    return writer.call(aten.squeeze.dims, product, [1])
