"""Names and behaviour of torch that differ between its versions.

This is the only module that asks which torch is installed. It looks for the feature itself rather
than for a version number wherever that is possible.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import global_decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._higher_order_ops.while_loop import while_loop_op
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes

__all__ = [
    "BUFFER_WRITES",
    "COMPOSITE_IMPLICIT",
    "ELEMENTWISE_TYPE_PROMOTION_KIND",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "MissingOverload",
    "OpOverload",
    "OpOverloadPacket",
    "aten",
    "check",
    "child_specs",
    "clear_dispatch_cache",
    "disable_current_modes",
    "elementwise_dtypes",
    "enable_python_dispatcher",
    "global_decomposition_table",
    "guards_code",
    "has_composite_kernel",
    "has_symbolic_sizes",
    "is_alias_of",
    "is_view",
    "make_wrapper_subclass",
    "pytree",
    "schema_of",
    "sym_sqrt",
    "sympy_functions",
    "while_loop_op",
]

check = torch._check
sym_sqrt = torch._sym_sqrt
is_alias_of = torch._C._is_alias_of
make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
COMPOSITE_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd


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


def has_composite_kernel(op: OpOverload) -> bool:
    """Return whether torch takes the op apart by itself (CompositeImplicitAutograd)."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))


def has_symbolic_sizes(tensor: torch.Tensor) -> bool:
    """Return whether a size or stride is symbolic, ten times as fast as reading the shape."""
    return bool(tensor._has_symbolic_sizes_strides)


def is_view(tensor: torch.Tensor) -> bool:
    return bool(tensor._is_view())


def schema_of(op: Any) -> Any:
    """Return the schema of an overload."""
    return op._schema


def sympy_functions() -> Any:
    """Return torch's sympy functions; importing sympy takes 0.3 s, so this is done when needed."""
    from torch.utils._sympy import functions

    return functions


def clear_dispatch_cache(op: OpOverload) -> None:
    """Make torch look up the Python kernels of an op again."""
    op._dispatch_cache.clear()


def guards_code(program: torch.export.ExportedProgram) -> list[str]:
    """Return the guards of an exported program as expressions in Python."""
    return list(getattr(program, "_guards_code", None) or [])
