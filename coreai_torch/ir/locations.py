"""An FX node to the location that every op made for it carries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx
from coreai._compiler.dialects import debuginfo
from coreai._compiler.ir import FlatSymbolRefAttr, Location, StringAttr

from ..errors import module_path

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


@dataclass
class Locations:
    """Locations of one graph; built once per distinct place and entered as a scope.

    Without `debug` an op carries the path of its module and nothing of the machine it was
    converted on; with it also the FX node and the user's source lines, innermost first.
    """

    graph: str
    debug: bool
    _known: dict[Any, Location] = field(default_factory=dict)

    def of(self, node: fx.Node) -> Location:
        """The location of what the node becomes."""
        path = module_path(node)
        if not self.debug:
            if not path:  # as inside a branch, whose ops then belong where the branch does
                return here()
            return self._cached(path, lambda: _tagged([("module", path)]))
        trace = node.meta.get("stack_trace") or ""
        return self._in_source(node, path, trace)

    def _cached(self, key: Any, make: Any) -> Location:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _in_source(self, node: fx.Node, path: str, trace: str) -> Location:
        tags = [("fx_node", node.name), ("target", str(node.target)), ("module", path)]
        frames = self._cached(trace, lambda: _frames(trace, self.graph))
        if not frames:
            return _tagged(tags)
        (file, line), outer = frames
        return debuginfo.location_attr(
            src=Location.file(file, line, 1),
            scope=FlatSymbolRefAttr.get(self.graph),
            fused_with=outer,
            metadata=_metadata(tags),
        )


def _metadata(tags: list[tuple[str, str]]) -> list[Any]:
    return [debuginfo.metadata_attr(k, data=StringAttr.get(v)) for k, v in tags if v]


def _tagged(tags: list[tuple[str, str]]) -> Location:
    return debuginfo.metadata_location_attr(metadata=_metadata(tags))


def _frames(trace: str, graph: str) -> tuple[tuple[str, int], list[Location]] | None:
    """The innermost source line, and the lines that called it as locations."""
    found = [(m["file"], int(m["line"])) for m in _FRAME.finditer(trace)]
    if not found:
        return None
    scope = FlatSymbolRefAttr.get(graph)
    outer = [
        debuginfo.location_attr(src=Location.file(file, line, 1), scope=scope)
        for file, line in reversed(found[:-1])
    ]
    return found[-1], outer


def here() -> Location:
    """The location that is entered now."""
    return Location.current
