"""The supported ops as the mappings that other programs look up: views of the registry."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import ops as _ops  # noqa: F401  fills the registry
from ..lowering.binding import Call
from ..lowering.entry import Entry
from ..lowering.op_names import op_namespace
from ..lowering.registry import BUILTIN, FunctionLowering
from ..lowering.scope import ValuesMap

_GETITEM = FunctionLowering(operator.getitem, lambda ctx, values, index: values[index])


class Resolver(Mapping[str, Any]):
    """Built-in lowerings by name, each callable as `(values_map, node, loc)`.

    The keys are names without the namespace: `add.Tensor`, `getitem`. A name with it, such as
    `aten.add.Tensor`, is found too.
    """

    def __init__(self, namespaces: tuple[str, ...]) -> None:
        self._namespaces = namespaces

    def _named(self) -> dict[str, Entry]:
        named = ((*op_namespace(entry.target), entry) for entry in (*BUILTIN, _GETITEM))
        return {name: entry for space, name, entry in named if space in self._namespaces}

    def __getitem__(self, name: str) -> Any:
        entries = self._named()
        space, _, rest = name.partition(".")
        return _Legacy(entries[rest if name not in entries and space in self._namespaces else name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._named())

    def __len__(self) -> int:
        return len(self._named())


@dataclass(frozen=True)
class _Legacy:
    """A built-in lowering that a lowering of the form `(values_map, node, loc)` can call."""

    entry: Entry

    def __call__(self, values_map: ValuesMap, node: Any, loc: Any = None) -> Any:
        """Lower a node whose operands are in the map."""
        return self.entry(Call(node, values_map.scope), values_map.lower_subgraph)

    def __repr__(self) -> str:
        return f"<lowering of {self.entry.target}>"


_aten_to_core_resolver = Resolver(("aten", ""))  # "" for Python functions: getitem, mul
_custom_to_core_resolver = Resolver(("coreai",))
_higher_order_resolver = Resolver(("higher_order",))
