"""The source location of each FX node, for all ops that are emitted for it."""

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

    def of(self, node: fx.Node, source: fx.Node | None = None) -> Location:
        """Enter the location of a node.

        The ops record the module, target and source lines of `source`, by default the node
        itself. A convolution that was fused with a batch norm is written down as the convolution,
        but its value is that of the batch norm's node.
        """
        source = source or node
        path = module_path(source)
        if not self.debug:
            if not path:  # inside a branch: its ops keep the location of the branch
                return here()
            return self._cached(path, lambda: _tagged([("module", path)]))
        return self._in_source(node, source, path)

    def _cached(self, key: Any, make: Any) -> Location:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _in_source(self, node: fx.Node, source: fx.Node, path: str) -> Location:
        trace = source.meta.get("stack_trace") or ""
        metadata = [
            debuginfo.metadata_attr("fx_node", data=StringAttr.get(node.name)),
            self._tag("target", str(source.target)),
            *([self._tag("module", path)] if path else ()),
        ]
        frames = self._cached(trace, lambda: self._frames(trace))
        if not frames:
            return debuginfo.metadata_location_attr(metadata=metadata)
        innermost, outer = frames
        return debuginfo.location_attr(
            src=innermost, scope=self._scope(), fused_with=outer, metadata=metadata
        )

    def _tag(self, key: str, value: str) -> Any:
        tag = debuginfo.metadata_attr
        return self._cached((key, value), lambda: tag(key, data=StringAttr.get(value)))

    def _scope(self) -> Any:
        return self._cached("scope", lambda: FlatSymbolRefAttr.get(self.graph))

    def _frames(self, trace: str) -> tuple[Location, list[Location]] | None:
        """Return the innermost source line and its callers as locations."""
        found = [(m["file"], int(m["line"])) for m in _FRAME.finditer(trace)]
        if not found:
            return None
        return Location.file(*found[-1], 1), [self._caller(f) for f in reversed(found[:-1])]

    def _caller(self, frame: tuple[str, int]) -> Location:
        # Most callers are shared: the forward of a layer, the forward of the model.
        return self._cached(
            frame,
            lambda: debuginfo.location_attr(src=Location.file(*frame, 1), scope=self._scope()),
        )


def _tagged(tags: list[tuple[str, str]]) -> Location:
    metadata = [debuginfo.metadata_attr(k, data=StringAttr.get(v)) for k, v in tags]
    return debuginfo.metadata_location_attr(metadata=metadata)


def of_weight(name: str) -> Location:
    """Return the current location with the name of a weight."""
    return Location.fused([Location.current, _tagged([("weight", name)])])


def here() -> Location:
    """Return the current location."""
    return Location.current
