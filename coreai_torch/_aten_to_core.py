"""Compatibility names that other projects use to look up supported ops: views of the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import ops as _ops  # noqa: F401  fills the registry
from .lowering.registry import BUILTIN
from .torch_compat import HigherOrderOperator, OpOverload


class _View(Mapping[str, Any]):
    """Registry entries by overload name, such as `aten.add.Tensor`."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def _named(self) -> dict[str, Any]:
        found = {str(e.target): e for e in BUILTIN if isinstance(e.target, self._kind)}
        if self._kind is OpOverload:
            found |= {_dotted(e.target): e for e in BUILTIN if isinstance(e.target, str)}
        return found

    def __getitem__(self, name: str) -> Any:
        return self._named()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named())

    def __len__(self) -> int:
        return len(self._named())


def _dotted(name: str) -> str:
    """Return the overload name of `torchvision::nms`, whose library may not be installed."""
    namespace, _, op = name.partition("::")
    return f"{namespace}.{op}" if "." in op else f"{namespace}.{op}.default"


_aten_to_core_resolver = _View(OpOverload)
_higher_order_resolver = _View(HigherOrderOperator)

__all__ = ["_aten_to_core_resolver", "_higher_order_resolver"]
