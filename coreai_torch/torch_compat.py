"""Names and behaviour of torch that differ between its versions.

This is the only module that asks which torch is installed. It looks for the feature itself rather
than for a version number wherever that is possible.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest import mock

import torch
from torch import fx

from . import torch_version

torch_version.check(torch.__version__)  # first: an old torch lacks some of the names below

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
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes

__all__ = [
    "BUFFER_WRITES",
    "COMPOSITE_IMPLICIT",
    "ELEMENTWISE_TYPE_PROMOTION_KIND",
    "OP_VERSIONS",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "MissingOverload",
    "OpOverload",
    "OpOverloadPacket",
    "TorchDispatchMode",
    "aten",
    "check",
    "child_specs",
    "clamp_ignores_nan_min",
    "clamp_wraps_negative_bounds",
    "clear_dispatch_cache",
    "computed_by",
    "disable_current_modes",
    "draft_export",
    "elementwise_dtypes",
    "enable_python_dispatcher",
    "global_decomposition_table",
    "guards_code",
    "has_composite_kernel",
    "has_symbolic_sizes",
    "interned_files",
    "is_alias_of",
    "is_data_dependent",
    "is_view",
    "isclose_broadcasts_equal_nan",
    "linspace_rounds_half_steps",
    "make_wrapper_subclass",
    "print_no_graphs",
    "pytree",
    "schema_of",
    "sdpa_accepts_mask_and_causal",
    "set_guards",
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

# Ops that some supported versions of torch lack: the first and the last version that has them.
OP_VERSIONS: dict[str, tuple[str, str]] = {
    "aten::_upsample_lanczos2d_aa": ("2.12", ""),
    "aten::cholesky": ("", "2.13"),
    "aten::linalg_matrix_sqrth": ("2.14", ""),
    "aten::linalg_polar": ("2.14", ""),
}


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


def defined_in_python(name: str) -> bool:
    """Return whether a Python program defined the op `namespace::op`."""
    return name in torch.library._defs


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


def computed_by(tensor: torch.Tensor) -> fx.Node | None:
    """Return the node that computes a tensor, while a graph is traced; None if it is unknown."""
    mode = get_proxy_mode()
    slot = get_proxy_slot(tensor, mode.tracer, None) if mode is not None else None
    return slot.proxy.node if slot is not None else None


def draft_export(*args: Any, **kwargs: Any) -> torch.export.ExportedProgram:
    """Export with `torch.export.draft_export`, and close the file of its log.

    Symptom: `ResourceWarning: unclosed file` some time after any call (torch 2.13).
    """
    from torch.export import _draft_export as module

    logs: list[Any] = []

    class Kept(module.CaptureStructuredTrace):  # type: ignore[misc]  # torch has no types
        def __enter__(self) -> Any:
            logs.append(self)
            return super().__enter__()

    try:
        with mock.patch.object(module, "CaptureStructuredTrace", Kept):
            return torch.export.draft_export(*args, **kwargs)
    finally:
        for log in logs:
            log.close()


def interned_files() -> dict[int, str]:
    """Return the files that the stacks of torch's structured logs name by number."""
    table: dict[str, int] = torch._logging.structured.INTERN_TABLE
    return {number: file for file, number in table.items()}


def size_names(environment: Any) -> dict[Any, str]:
    """Return the names that `Dim` objects gave to symbolic sizes; a saved program has lost them."""
    given = getattr(environment, "source_name_to_debug_name", {})
    symbols = getattr(environment, "source_to_var", {})
    named = ((symbols.get(source), name) for source, name in given.items())
    return {symbol: name for symbol, name in named if symbol is not None and name.isidentifier()}


def guards_code(program: torch.export.ExportedProgram) -> list[str]:
    """Return the guards of an exported program as expressions in Python."""
    return list(getattr(program, "_guards_code", None) or [])


def set_guards(program: torch.export.ExportedProgram, guards: list[str]) -> None:
    """Replace the guards, which torch derives from the first export even if inputs changed."""
    if hasattr(program, "_guards_code"):
        program._guards_code = guards


_prints_graphs: ContextVar[bool] = ContextVar("prints_graphs", default=True)


def _print(*values: Any, **options: Any) -> None:
    if _prints_graphs.get():
        print(*values, **options)  # noqa: T201  torch's own output


@contextmanager
def print_no_graphs() -> Iterator[None]:
    """Drop the graph that torch.export prints to standard error when it fails (2.9 to 2.15)."""
    from torch.export import _trace  # imported by the first export

    _trace.print = _print  # a name of its module, found before the builtin
    token = _prints_graphs.set(False)
    try:
        yield
    finally:
        _prints_graphs.reset(token)


def is_data_dependent(error: BaseException) -> bool:
    """Return whether torch failed to trace because the code reads values of a tensor."""
    known = (DataDependentOutputException, DynamicOutputShapeException)
    return isinstance(error, known) or "data-dependent" in str(error).lower().replace(" ", "-")


# Differences in behaviour between versions. Each probe asks eager torch once per process.
# test_torch_compat.py checks each probe against the versions that are named beside it.


def _probe(question: Callable[[], bool]) -> Callable[[], bool]:
    """Ask once, with real tensors even if the caller is inside a fake or tracing mode."""

    @functools.cache
    @functools.wraps(question)
    def answer() -> bool:
        with disable_current_modes(), torch.no_grad():
            return question()

    return answer


def _accepts(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError:
        return False
    return True


@_probe
def clamp_ignores_nan_min() -> bool:
    """Return whether `clamp(x, min=nan)` is `x` (torch 2.11 and before) rather than NaN."""
    return not bool(torch.clamp(torch.zeros(1), min=float("nan")).isnan())


@_probe
def clamp_wraps_negative_bounds() -> bool:
    """Return whether a uint8 tensor is clamped at 254 by `min=-2` (torch 2.14 and before).

    torch 2.15 ignores a bound that every value satisfies, and raises for one that none does.
    """
    return int(torch.clamp(torch.zeros(1, dtype=torch.uint8), min=-2)) == 254


@_probe
def linspace_rounds_half_steps() -> bool:
    """Return whether `linspace` in float16 rounds its step to float16 (torch 2.14 and before)."""
    return float(torch.linspace(-1.3, 2.7, 7, dtype=torch.float16)[3]) == 0.69921875


@_probe
def isclose_broadcasts_equal_nan() -> bool:
    """Return whether `isclose(..., equal_nan=True)` broadcasts (from torch 2.12)."""
    column = torch.zeros(2, 1)
    return _accepts(lambda: torch.isclose(torch.zeros(2), column, equal_nan=True))


@_probe
def sdpa_accepts_mask_and_causal() -> bool:
    """Return whether eager attention takes `attn_mask` with `is_causal` (torch 2.13 and before)."""
    x, mask = torch.zeros(1, 1, 2, 2), torch.zeros(2, 2)
    attention = torch.nn.functional.scaled_dot_product_attention
    return _accepts(lambda: attention(x, x, x, attn_mask=mask, is_causal=True))


def remove_autograd_decomposition(op: OpOverload) -> None:
    """Make `run_decompositions` use its table for an op that torch decomposes before.

    Symptom: labels after the first -1 count as label 0 in `multilabel_margin_loss`. To reproduce:
    `export(...).run_decompositions({aten.multilabel_margin_loss_forward.default: fn})` never calls
    `fn`, because torch 2.11 to 2.13 registers its own function for the key `Autograd`, which comes
    first. Eager torch does not use it.
    """
    op.py_kernels.pop(torch._C.DispatchKey.Autograd, None)
    clear_dispatch_cache(op)
