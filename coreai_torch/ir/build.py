"""The module under construction: its blocks, constants and symbol names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from coreai._compiler._mlir_libs._coreaiIR._bindings.mlir.dialects.coreai import (
    register_should_const_folding_hook,
)
from coreai._compiler.ir import Attribute, Block, InsertionPoint, Location, Module, Value
from coreai.authoring import Context

from ..torch_compat import is_view
from . import constants, types
from .zero_size import NEVER, ZeroSizes

_CURRENT: ContextVar[Build] = ContextVar("build")

# Largest number of elements of a constant that torch transposes or reshapes in place of an op.
# Larger weights keep their layout: a transposed copy of 1 GB takes longer than the conversion.
SMALL = 1 << 18
LITERAL = "literal"  # the name of a number
_AS_USED = ".as_used"  # suffix of the name of such a constant


def _never_fold(op: Any) -> bool:
    """Disable the native constant folder.

    Constant subgraphs are folded by torch before they get here. The native folder drops NaN,
    wraps where the runtime saturates, crashes on `gelu`, and names its results by a hash
    that differs between processes.
    """
    return False


class Build:
    """One module, and what must be unique or shared within it."""

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact  # whether lowerings guard infinities, NaN and overflow at any cost
        self.is_read = False  # whether the module was read from an asset
        self.context = Context()
        self.constants = constants.Constants()
        self._attributes: dict[Any, Attribute] = {}
        self._contents: dict[Attribute, tuple[torch.Tensor, str]] = {}
        self._weights: set[str] = set()
        self._symbols: set[str] = set()
        self._blocks: list[Block] = []
        self._emitted: list[dict[int, Value]] = []
        self._superseded: list[list[Value]] = []
        self._placed: list[list[Value]] = [[]]
        self._run_time: list[set[int]] = [set()]
        # Tensors and constants of complete graphs. An op on constants alone reads one of them: the
        # numbers that other functions emit are axes, sizes or the second operand.
        self.finished_constants: list[Value] = []
        self.shared_graphs: dict[Any, Any] = {}
        self.zero_sizes = NEVER
        self.narrows_fillers = False  # while a call is lowered whose numbers are fillers
        self.open_scans = itertools.count()  # numbers the scans over dynamic sizes

    @staticmethod
    def current() -> Build:
        """Return the build that is open in this thread."""
        return _CURRENT.get()

    @contextmanager
    def open(self) -> Iterator[Build]:
        """Build into this module."""
        token = _CURRENT.set(self)
        try:
            with self.context, Location.unknown() as here:
                # The folding hook is Python: with threads, a pass waits for the interpreter lock
                # that its caller holds, and never returns.
                here.context.enable_multithreading(False)
                register_should_const_folding_hook(callable=_never_fold, context=here.context)
                self.module = Module.create()
                with InsertionPoint(self.module.body):
                    yield self
        finally:
            _CURRENT.reset(token)

    @classmethod
    @contextmanager
    def over(cls, module: Any) -> Iterator[Build]:
        """Change a module that exists already."""
        build = cls()
        build.is_read = True
        build.module, token = module, _CURRENT.set(build)
        try:
            with module.context, Location.unknown():
                yield build
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def assume(self, zero_sizes: ZeroSizes) -> Iterator[None]:
        """Build under this assumption about dynamic sizes; `ir.zero_size` says what it is for."""
        before, self.zero_sizes = self.zero_sizes, zero_sizes
        try:
            yield
        finally:
            self.zero_sizes = before

    @contextmanager
    def graph_body(self, block: Block) -> Iterator[None]:
        """Build inside a graph; its large constants are placed at the head of the block."""
        self._blocks.append(block)
        self._emitted.append({})
        self._superseded.append([])
        self._placed.append([])
        self._run_time.append(set())
        try:
            with InsertionPoint(block):
                yield
            unused = {value for value in self._superseded[-1] if not is_read(value)}
            self.finished_constants += (v for v in self._placed[-1] if v not in unused)
            for value in unused:
                value.owner.erase()
        finally:
            self._blocks.pop()
            self._emitted.pop()
            self._superseded.pop()
            self._placed.pop()
            self._run_time.pop()

    @property
    def run_time_values(self) -> set[int]:
        """The hashes of values in the graph being built that are known not to be constants.

        No operation is erased before the graph is complete, so no hash is used twice.
        """
        return self._run_time[-1]

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve these graph names for the entry points."""
        self._symbols.update(names)

    def symbol(self, wanted: str) -> str:
        """Return a graph name that is unused and a valid symbol."""
        base = re.sub(r"[^\w.$-]", "_", wanted, flags=re.ASCII)
        if not re.match(r"[A-Za-z_]", base):  # the path of a module in nn.Sequential: `0.norm`
            base = f"_{base}"
        name, count = base, 0
        while name in self._symbols:
            count += 1
            name = f"{base}_{count}"
        self._symbols.add(name)
        return name

    def weight(self, tensor: torch.Tensor, name: str) -> Value:
        """Return a tensor of the model as a value, whose location has the name if it is short."""
        self._weights.add(name)
        return self.tensor(tensor, name)

    def tensor(self, tensor: torch.Tensor, name: str) -> Value:
        """Return a tensor as a value of the current graph, emitted once per graph."""
        attribute = self.constants.attribute(tensor, name)
        self._contents.setdefault(attribute, (tensor, name))
        emitted, key = self._emitted[-1], hash(attribute)
        if key not in emitted or emitted[key].owner.attributes["value"] != attribute:
            weight = name if name.removesuffix(_AS_USED) in self._weights else ""
            emitted[key] = constants.emit(attribute, self._blocks[-1], weight)
            self._placed[-1].append(emitted[key])
        return emitted[key]

    def folded(self, tensor: torch.Tensor, name: str) -> Value:
        """Emit a tensor that was computed from the constant of this name, at the current place."""
        name = f"{name.removesuffix(_AS_USED)}{_AS_USED}"
        attribute = self.constants.attribute(tensor, name)
        self._contents.setdefault(attribute, (tensor, name))
        weight = name if name.removesuffix(_AS_USED) in self._weights else ""
        return constants.emit(attribute, weight=weight)

    def name(self, constant: Value) -> str:
        """Return the name of a constant that was emitted here; empty for others."""
        return self._contents.get(constant.owner.attributes["value"], (None, ""))[1]

    def content(self, constant: Value) -> torch.Tensor | None:
        """Return the tensor of a constant that was emitted here."""
        content, _ = self._contents.get(constant.owner.attributes["value"], (None, ""))
        return content

    def changed(
        self, constant: Value, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> Value | None:
        """Apply a change to a constant in torch instead of by an op; return None for other values.

        A large constant is changed only if that copies nothing.
        """
        owner = constant.owner
        if isinstance(owner, Block) or owner.name != "coreai.constant":
            return None
        content, name = self._contents.get(owner.attributes["value"], (None, ""))
        if content is None:
            return None
        result = change(content.detach()) if content.numel() <= SMALL else _seen_as(content, change)
        if result is None:
            return None
        self._superseded[-1].append(constant)
        return self.tensor(result, f"{name.removesuffix(_AS_USED)}{_AS_USED}")

    def number(self, value: complex | Sequence[int], dtype: torch.dtype) -> Value:
        """Emit a small constant of the given narrow dtype at the current place."""
        key = (repr(value), dtype, self.narrows_fillers)
        if key not in self._attributes:
            wide = torch.tensor(value, dtype=_exact(value, dtype))
            wide = constants.fillers_narrowed(wide) if self.narrows_fillers else wide
            tensor = constants.narrowed(wide, LITERAL)
            tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
            self._attributes[key] = self.constants.attribute(tensor, LITERAL)
            self._contents[self._attributes[key]] = (tensor, LITERAL)
        return constants.emit(self._attributes[key])

    def constant(self, value: complex | Sequence[int], dtype: torch.dtype) -> Value:
        """Emit a small constant as `number` does; ops on it may be evaluated later."""
        self._placed[-1].append(self.number(value, dtype))
        return self._placed[-1][-1]


def is_read(value: Value) -> bool:
    """Return whether an op reads a value."""
    return any(True for _ in value.uses)


def _seen_as(
    content: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor | None:
    """Return the changed tensor if it is a contiguous view of all elements, else None."""
    if not content.is_contiguous():
        return None
    # Tried on a meta tensor, so that a change that copies does not copy a large weight.
    meta = change(torch.empty_like(content, device="meta"))
    same = meta.numel() == content.numel() and meta.is_contiguous() and is_view(meta)
    return change(content.detach()) if same else None


def _exact(value: complex | Sequence[int], dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to read a literal in; integers are range-checked in 64 bits."""
    plain = types.narrow(dtype)
    if plain.is_floating_point or plain.is_complex or plain == torch.bool:
        return plain
    return torch.int64 if plain == torch.int32 else plain
