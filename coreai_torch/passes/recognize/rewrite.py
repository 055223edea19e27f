"""Replace recognized parts of a program by composites, in one traversal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.export.graph_signature import InputKind

from ...errors import ArgumentTypeError, ConversionError, module_path
from ...fx.editing import Writer, replace
from ...fx.liveness import live_nodes
from ...fx.marks import is_mark
from ...fx.programs import copied_module, with_graph
from ...torch_compat import OpOverload
from ..externalize.cut import Region, regions
from ..externalize.spec import Externalized
from . import attention_pattern, experts, rms_norm, rotary
from .pattern import Match, Mismatch, Surroundings, dtype_of, same_sizes, shape_of
from .recognition_report import Found, Missed, RecognitionReport

PATTERNS = (rms_norm, rotary, attention_pattern, experts)
COMPOSITES = tuple(pattern.COMPOSITE for pattern in PATTERNS)
_SHUT = -1  # number of the region that holds the nodes inside existing composites


def wanted_composites(asked: bool | Collection[str]) -> tuple[str, ...]:
    """Return the composites to look for: all, none, or the named ones."""
    if isinstance(asked, bool):
        return COMPOSITES if asked else ()
    if not isinstance(asked, Collection):
        raise ArgumentTypeError(
            f"recognize is {asked!r}\n  try   True, or some of {list(COMPOSITES)}"
        )
    named = (asked,) if isinstance(asked, str) else tuple(asked)
    unknown = [name for name in named if name not in COMPOSITES]
    if unknown:
        raise ConversionError(
            f"nothing recognises {', '.join(map(repr, unknown))}\n"
            f"  try   True, or some of {list(COMPOSITES)}"
        )
    return named


def recognized(
    program: torch.export.ExportedProgram,
    entrypoint: str = "main",
    externalized: Sequence[Externalized] = (),
    composites: Collection[str] = COMPOSITES,
) -> tuple[torch.export.ExportedProgram, RecognitionReport]:
    """Return a copy of the program with composites, and a report."""
    found: list[Found] = []
    missed: list[Missed] = []
    wanted = [pattern for pattern in PATTERNS if pattern.COMPOSITE in composites]
    module = copied_module(program.graph_module)
    weights = _weights(program)
    for inner in module.modules():
        if isinstance(inner, fx.GraphModule):
            _Pass(inner.graph, wanted, entrypoint, found, missed).run(
                weights if inner is module else frozenset(), externalized
            )
            inner.recompile()
    return with_graph(program, module), RecognitionReport(tuple(found), tuple(missed))


def _weights(program: torch.export.ExportedProgram) -> set[str]:
    """Return the placeholders that no call writes."""
    signature = program.graph_signature
    written = set(signature.buffers_to_mutate.values())
    return {
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind is not InputKind.USER_INPUT
        and spec.target not in written
        and hasattr(spec.arg, "name")
    }


@dataclass
class _Pass:
    """The traversal of one graph."""

    graph: fx.Graph
    patterns: Sequence[Any]
    entrypoint: str
    found: list[Found]
    missed: list[Missed]

    def run(self, weights: Collection[str], externalized: Sequence[Externalized]) -> None:
        """Try each pattern at every node that it can start from."""
        anchors: dict[str, list[Any]] = {}
        for pattern in self.patterns:
            for target in pattern.ANCHORS:
                anchors.setdefault(_key(target), []).append(pattern)
        cut = _regions(self.graph, externalized)
        around = Surroundings(live_nodes(self.graph), _constant(self.graph, weights), cut)
        around.live.update(node for node in self.graph.nodes if is_mark(node))
        replaced: set[fx.Node] = set()
        for node in list(self.graph.nodes):
            if node.op != "call_function" or node not in around.live or node in replaced:
                continue
            if cut.get(node) == _SHUT:
                continue
            for pattern in anchors.get(_key(node.target), ()):
                match = self._tried(pattern, node, around)
                if match is not None:
                    replaced.update((*match.inside, match.output))
                    break

    def _tried(self, pattern: Any, anchor: fx.Node, around: Surroundings) -> Match | None:
        try:
            match: Match | None = pattern.match(anchor, around)
            if match is None:
                return None
            around.check(match)
            name = match.output.name
            self._replace(match, around)
        except Mismatch as reason:
            row = (pattern.COMPOSITE, module_path(anchor), anchor.name)
            self.missed.append(Missed(*row, str(reason), self.entrypoint))
            return None
        path = module_path(anchor)
        self.found.append(Found(pattern.COMPOSITE, path, name, match.kept, self.entrypoint))
        return match

    def _replace(self, match: Match, around: Surroundings) -> None:
        if match.write is None:
            return
        old, writer = match.output, Writer(match.output)
        try:
            new = match.write(writer)
            _agree(new, old)
        except (ValueError, RuntimeError) as cause:
            writer.forget()
            raise Mismatch(f"the composite cannot compute it: {cause}") from cause
        except Mismatch:
            writer.forget()
            raise
        new.meta["val"] = old.meta["val"]
        replace(old, new)
        around.live.update(writer.added)
        around.live.difference_update((*match.inside, old))
        self._clear((*match.inside, old))

    def _clear(self, nodes: Sequence[fx.Node]) -> None:
        """Erase dead nodes and the assertions about them."""
        order = {node: place for place, node in enumerate(dict.fromkeys(nodes))}
        pending = sorted(order, key=lambda n: order[n])
        while pending:
            idle = [n for n in pending if all(_is_assertion(user) for user in n.users)]
            if not idle:
                return
            for node in idle:
                for user in list(node.users):
                    self.graph.erase_node(user)
                self.graph.erase_node(node)
            pending = [n for n in pending if n not in idle]


def _is_assertion(node: fx.Node) -> bool:
    return node.target is torch.ops.aten._assert_tensor_metadata.default


def _agree(new: fx.Node, old: fx.Node) -> None:
    if dtype_of(new) != dtype_of(old):
        raise Mismatch(f"the composite's result is {dtype_of(new)}, not {dtype_of(old)}")
    if not same_sizes(shape_of(new), shape_of(old)):
        sizes = f"{list(shape_of(new))}, not {list(shape_of(old))}"
        raise Mismatch(f"the composite's result has sizes {sizes}")


def _key(target: Any) -> str:
    if isinstance(target, OpOverload):
        return str(target.name())
    return target if isinstance(target, str) else ""


def _constant(graph: fx.Graph, weights: Collection[str]) -> set[fx.Node]:
    """Return the nodes that depend on weights and numbers only."""
    known: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            is_known = node.name in weights
        else:
            is_known = node.op != "output" and all(n in known for n in node.all_input_nodes)
        if is_known:
            known.add(node)
    return known


def _regions(graph: fx.Graph, externalized: Sequence[Externalized]) -> dict[fx.Node, int]:
    """Return the innermost externalized call of each node."""
    number: dict[fx.Node, int] = {}

    def note(region: Region, shut: bool) -> None:
        shut = shut or region.match.composite is not None
        mark = _SHUT if shut else len(number) + 1
        number.update((node, mark) for node in region.body)
        for inner in region.nested:
            note(inner, shut)

    for region in regions(graph.nodes, externalized):
        note(region, False)
    return number
