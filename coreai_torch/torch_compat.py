"""Names and behaviour of torch that differ between its versions.

This is the only module that asks which torch is installed. It looks for the feature itself rather
than for a version number wherever that is possible.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree


class MissingOverload:
    """An overload that the installed torch does not have. Registering a lowering for it is a no-op.

    `aten::cholesky` was removed in torch 2.14; `aten::_upsample_lanczos2d_aa` was added in 2.12.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"MissingOverload({self.name!r})"


class _MissingOp:
    """An op that the installed torch does not have; its attributes are missing overloads."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, overload: str) -> MissingOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        suffix = "" if overload == "default" else f".{overload}"
        return MissingOverload(f"{self._name}{suffix}")


class _Namespace:
    """`torch.ops.<name>`, except that an op that torch lacks is a placeholder, not an error."""

    def __init__(self, name: str) -> None:
        self._namespace = name

    def __getattr__(self, op: str) -> Any:
        found: Any = getattr(getattr(torch.ops, self._namespace), op, None)
        if found is None:
            if op.startswith("__"):  # Python asks for these: `__wrapped__`, `__len__`
                raise AttributeError(op)
            found = _MissingOp(f"{self._namespace}::{op}")
        setattr(self, op, found)
        return found


aten: Any = _Namespace("aten")


def child_specs(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    """Return the children of a tree spec: a method since torch 2.10, an attribute before."""
    children = getattr(spec, "children", None)
    return list(children()) if callable(children) else list(spec.children_specs)


# torch 2.8 has no PARAMETER_MUTATION and reports such writes as buffer mutations.
BUFFER_WRITES = tuple(
    kind
    for name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")
    if (kind := getattr(OutputKind, name, None)) is not None
)
