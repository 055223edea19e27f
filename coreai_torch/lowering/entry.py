"""The type that all lowering rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch.fx as fx

from ..errors import UnsupportedOpError, unsupported
from ..passes.pass_graph import Lower, Replacement
from .binding import Call
from .cases import Case

LowerSubgraph = Callable[[fx.GraphModule, Sequence[Any]], list[Any]]

BUILT_IN = "built-in"  # the origin of an entry that comes with the package


class Entry(Protocol):
    """A lowering rule: what a registry stores and what the walker calls.

    `Lowering`, `FunctionLowering` and `Decomposition` are the built-in kinds; `LegacyLowering`,
    `KernelLowering` and `CompositeLowering` are added to the registry of one converter; the passes
    ask for `ReplacedLowering`.
    """

    @property
    def target(self) -> Any:
        """The overload, function or higher-order op; the name of an op that torch may lack."""

    @property
    def origin(self) -> str:
        """Who wrote it: "built-in", or "registered" for a user's."""

    @property
    def cases(self) -> Sequence[Case]:
        """The calls that test it; none for an entry that is not built in."""

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Emit ops for a node and return its results: values, constants, or a list of these."""


@dataclass(frozen=True)
class ReplacedLowering:
    """Lowers a node as a pass says, by its registered lowering if the pass cannot."""

    target: Any
    replacement: Replacement
    registered: Entry | None
    lower: Lower
    cases: Sequence[Case] = ()

    @property
    def origin(self) -> str:
        """Who wrote the registered lowering."""
        return BUILT_IN if self.registered is None else self.registered.origin

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Emit the replacement."""
        result = self.replacement.emit(call.node, call.scope, self.lower)
        if result is not None:
            return result
        if self.registered is None:
            raise unsupported_op(call.node)
        return self.registered(call, lower_subgraph)


def is_built_in(entry: Entry) -> bool:
    """Whether an entry comes with the package."""
    return entry.origin == BUILT_IN


def unsupported_op(node: fx.Node) -> UnsupportedOpError:
    """Return the error for a node that nothing lowers."""
    hint = "use an op that the converter knows; `coreai_torch.ops` lists them"
    return unsupported([(node, hint)])
