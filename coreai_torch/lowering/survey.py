"""Find everything in a program that cannot be lowered, without stopping at the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from ..capture import validate
from ..errors import ConversionError, module_path, source_line, target_name
from ..ir import types
from ..ir.build import Build
from ..ir.graph import placeholder
from ..ir.locations import Locations
from ..passes.pass_graph import PassGraph
from .program import Staged, entrypoint
from .registry import Registry
from .scope import Scope
from .walk import Walk


@dataclass(frozen=True)
class Place:
    """The place of a blocker in the model."""

    node: str
    module: str
    source_line: str
    result: str  # shape and dtype of the result


@dataclass(frozen=True)
class Blocker:
    """One reason why a program cannot be converted, and all its places."""

    op: str
    problem: str
    code: str
    hint: str
    places: tuple[Place, ...]

    @property
    def count(self) -> int:
        """The number of places."""
        return len(self.places)


def survey(
    staged: Staged, registry: Registry, on_node: Callable[[], None] = lambda: None
) -> list[Blocker]:
    """Lower a program into a temporary module, with a placeholder for each result that fails."""
    walk = _Surveyor(registry, Locations(staged.entrypoint, False), on_node, staged.externalized)
    build = Build()
    with build.open():
        build.reserve([staged.entrypoint])
        try:
            entrypoint(staged, walk)
        except Exception:  # a placeholder does not fit: the cause is already recorded
            if not walk.found:
                raise
    return walk.blockers()


@dataclass(frozen=True)
class _Surveyor(Walk):
    """A walk that records errors and continues."""

    found: list[tuple[fx.Node, str, str, str]] = field(default_factory=list)

    def _node(self, node: fx.Node, graph: PassGraph, scope: Scope) -> Any:
        try:
            return super()._node(node, graph, scope)
        except ConversionError as error:
            self._note(node, error)
            return _placeholders(node.meta.get("val"))

    def _note(self, node: fx.Node, error: ConversionError) -> None:
        lines = str(error.args[0]).splitlines() or [type(error).__name__]
        tries = [line.removeprefix("  try   ") for line in lines if line.startswith("  try   ")]
        missing = self.registry.for_node(node) is None
        problem = "no lowering" if missing else lines[0]
        hint = validate.hint(node) if missing else next(iter(tries), "")
        self.found.append((node, problem, error.code, hint))

    def blockers(self) -> list[Blocker]:
        """Return the problems, grouped, the most frequent first."""
        grouped: dict[tuple[str, str, str, str], list[Place]] = {}
        for node, problem, code, hint in self.found:
            key = (target_name(node.target), problem, code, hint)
            grouped.setdefault(key, []).append(_place(node))
        every = [Blocker(*key, tuple(places)) for key, places in grouped.items()]
        return sorted(every, key=lambda b: (-b.count, b.op))


def _place(node: fx.Node) -> Place:
    return Place(node.name, module_path(node), source_line(node), _describe(node.meta.get("val")))


def _describe(val: Any) -> str:
    if isinstance(val, list | tuple):
        return ", ".join(_describe(part) for part in val)
    if isinstance(val, torch.Tensor):
        return f"{str(val.dtype).removeprefix('torch.')}{list(val.shape)}"
    return type(val).__name__


def _placeholders(val: Any) -> Any:
    if isinstance(val, list | tuple):
        return [_placeholders(part) for part in val]
    try:
        return None if val is None else placeholder(types.ranked(val))
    except ConversionError:  # the type itself is the problem
        return None
