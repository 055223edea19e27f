"""Split the result of a product once, where it costs least: by heads, after these are moved.

Attention reads query, key and value as parts of one product. Each becomes a view of heads, which is
moved before the sequence. One view and one permutation of all heads, and then a split, need fewer
ops, and the split copies blocks of memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..fx.editing import Writer, supersede
from ..torch_compat import aten
from .recognize.pattern import arguments, is_call, is_view, part_of, same_sizes, shape_of

_SPLITS = (aten.split_with_sizes.default, aten.split.Tensor)


def split_products(program: torch.export.ExportedProgram) -> None:
    """Split the products of linear layers whose parts are read one by one."""
    for node in list(program.graph.nodes):
        if is_call(node, aten.linear.default):
            for old, new in _Parts.of(node).arranged():
                supersede(old, new)


@dataclass
class _Parts:
    """Nodes that read one axis of a source part by part; none if it is read in other ways."""

    source: fx.Node
    axis: int
    nodes: list[fx.Node]

    @classmethod
    def of(cls, source: fx.Node) -> _Parts:
        """Return the parts of the last axis of a source."""
        readers = list(source.users)
        if len(readers) == 1 and is_call(readers[0], *_SPLITS):
            readers = list(readers[0].users)
        found = [(part, node) for node in readers if (part := part_of(node)) is not None]
        width, axis, end = shape_of(source)[-1], len(shape_of(source)) - 1, 0
        if len(found) != len(readers):
            return cls(source, axis, [])
        found.sort(key=lambda row: row[0].start)
        for part, _ in found:
            if (part.base, part.start, part.step) != (source, end, 1):
                return cls(source, axis, [])
            end = part.stop
        return cls(source, axis, [node for _, node in found] if end == width else [])

    @property
    def sizes(self) -> list[int]:
        return [int(shape_of(node)[self.axis]) for node in self.nodes]

    def arranged(self) -> list[tuple[fx.Node, fx.Node]]:
        """Split behind the view and the permutation of heads; return what the parts replace."""
        if len(self.nodes) < 2:
            return []
        moved = self
        while (behind := moved._behind_views() or moved._behind_permutes()) is not None:
            moved = behind
        if moved is self and is_call(self.nodes[0], operator.getitem):
            return []
        parts = Writer(min(moved.nodes)).split(moved.source, moved.sizes, moved.axis)
        return list(zip(moved.nodes, parts, strict=True))

    def _behind_views(self) -> _Parts | None:
        """Return the parts as heads, `[..., heads, width]`, if all parts are viewed so."""
        views = self._only_users(is_view)
        shapes = [shape_of(view) for view in views]
        if not views or self.axis != len(shape_of(self.source)) - 1:
            return None
        *lead, _, width = shapes[0] if len(shapes[0]) > 1 else (None, None)
        if not all(
            same_sizes(shape[:-2], self._lead)
            and same_sizes(shape[-1:], (width,))
            and isinstance(shape[-2], int)
            for shape in shapes
        ):
            return None
        before, heads = min(views), sum(shape[-2] for shape in shapes)
        sizes = [*arguments(before)["size"][:-2], heads, width]
        joined = Writer(before).call(aten.view.default, self.source, sizes)
        return _Parts(joined, len(lead), views)

    def _behind_permutes(self) -> _Parts | None:
        """Return the parts of the permuted source, if all parts are permuted in the same way."""
        moved = self._only_users(lambda node: is_call(node, aten.permute.default))
        axes = [arguments(node)["dims"] for node in moved]
        if not moved or any(one != axes[0] for one in axes):
            return None
        joined = Writer(min(moved)).call(aten.permute.default, self.source, axes[0])
        rank = len(axes[0])
        return _Parts(joined, [axis % rank for axis in axes[0]].index(self.axis), moved)

    @property
    def _lead(self) -> tuple[Any, ...]:
        return shape_of(self.source)[:-1]

    def _only_users(self, test: Callable[[fx.Node], bool]) -> list[fx.Node]:
        """Return the only reader of each part; nothing unless all pass a test."""
        users = [list(node.users) for node in self.nodes]
        if all(len(found) == 1 and test(found[0]) for found in users):
            return [found[0] for found in users]
        return []
