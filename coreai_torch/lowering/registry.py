"""The lowering of each op, and the ops that export must therefore not decompose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch.fx as fx

from ..capture import decompositions
from ..errors import ConversionError
from ..fx.tracing import trace
from ..ir.casting import in_dtype
from ..ir.dialect import Value
from ..torch_compat import HigherOrderOperator, MissingOverload, OpOverload
from . import promotion
from .binding import Call, Signature
from .cases import Case
from .context import Ctx
from .entry import BUILT_IN, Entry, LowerSubgraph, is_built_in
from .promotion import Promote


def key(target: Any) -> str:
    """Return the name that an op is registered under; overload objects are not stable.

    An op of a library that may not be there is registered by its name, which is a string.
    """
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload):
        return str(target.name())
    if isinstance(target, HigherOrderOperator):
        return f"higher_order::{target.name()}"
    return f"{target.__module__}.{target.__name__}"


# How the line of a docstring starts that says what differs from torch at extremes.
WITHOUT_EXACT = "Without `exact`, "


@dataclass(frozen=True)
class Lowering:
    """Lowering rule of one overload with its metadata (promotion, ignored arguments, cases)."""

    target: Any
    fn: Callable[..., Any]
    promote: Promote = Promote.NOT
    ignore: Sequence[str] = ()
    cases: Sequence[Case] = field(default=(), repr=False)
    origin: str = BUILT_IN
    reason: str = ""  # why the target needs another form than the plain one

    @cached_property
    def signature(self) -> Signature:
        """The bound parameters; built at first use, because all of them take a second."""
        return Signature(self.target, self.fn, self.ignore)

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Bind, promote, lower."""
        bound = self.signature.bind(call)
        ctx = Ctx(call, lower_subgraph)
        args = promotion.promoted(self.promote, self.signature, call.node, bound)
        result = self.fn(ctx, **args)
        if self.promote is Promote.NOT or not isinstance(result, Value):
            return result
        return in_dtype(result, ctx.out_dtype)


@dataclass(frozen=True)
class FunctionLowering:
    """Lowering rule of a target without a schema; arguments are passed in order.

    Those of a higher-order op come with their constants still tensors: they go on into the
    graphs it holds, where more of them may fold.
    """

    target: Any
    fn: Callable[..., Any]
    cases: Sequence[Case] = field(default=(), repr=False)
    origin: str = BUILT_IN
    reason: str = ""  # why the target needs another form than the plain one

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Resolve the arguments and lower."""
        higher = isinstance(self.target, HigherOrderOperator)
        resolve = call.scope.resolve if higher else call.scope.values_of
        args, kwargs = resolve(call.node.args), resolve(dict(call.node.kwargs))
        return self.fn(Ctx(call, lower_subgraph), *args, **kwargs)


@dataclass(frozen=True)
class Decomposition:
    """An op written in torch; it enters the decomposition table instead of the dialect.

    A program that was decomposed with another table still holds the op: then the function is
    traced on the spot and its graph lowered in the node's place.
    """

    target: Any
    fn: Callable[..., Any]
    cases: Sequence[Case] = field(default=(), repr=False)
    origin: str = BUILT_IN
    reason: str = ""  # why the target needs another form than the plain one

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Trace the function on the fake arguments of the node and lower the graph."""
        graph, inputs = trace(self.fn, call.node, builtin_decompositions())
        results = lower_subgraph(graph, call.scope.resolve(inputs))
        several = isinstance(call.node.meta["val"], list | tuple)
        return results if several else results[0]


class Registry:
    """Lowerings by op name; a converter's registry extends the built-in one."""

    def __init__(self, base: Registry | None = None) -> None:
        self._base = base
        self._own: dict[str, Entry] = {}
        self.missing: set[str] = set()  # overloads that the installed torch does not have

    def add(self, entry: Entry, *, name: str | None = None, override: bool = False) -> None:
        """Register an entry under its target's name."""
        if isinstance(entry.target, MissingOverload):
            self.missing.add(entry.target.name)
            return
        name = name or key(entry.target)
        if name in self._own and not override:
            raise ConversionError(f"{name} already has a lowering")
        self._own[name] = entry

    def copy(self) -> Registry:
        """Return a registry with the same base whose own entries can change independently."""
        other = Registry(self._base)
        other._own, other.missing = dict(self._own), set(self.missing)
        return other

    def own_names(self) -> set[str]:
        """Return the names of the entries that the base does not provide or that replace its."""
        return set(self._own)

    def is_built_in(self) -> bool:
        """Return whether all entries are lowerings of this package."""
        return all(map(is_built_in, self._own.values()))

    def get(self, name: str) -> Entry | None:
        """Return the entry with this name: an own one, else one of the base."""
        return self._own.get(name) or (self._base.get(name) if self._base else None)

    def for_node(self, node: fx.Node) -> Entry | None:
        """Return the entry for the target of a node, or None."""
        return self.get(key(node.target))

    def names(self) -> set[str]:
        """Return all names that can be lowered."""
        return set(self._own) | (self._base.names() if self._base else set())

    @property
    def base(self) -> Registry:
        """Return the registry that this one extends; itself if there is none."""
        return self._base or self

    def own(self) -> list[Entry]:
        """Return the entries that the base does not provide or that replace its."""
        return list(self._own.values())

    def with_base(self, base: Registry) -> Registry:
        """Return a registry with the same own entries over another base."""
        other = self.copy()
        other._base = base
        return other

    def _all(self) -> dict[str, Entry]:
        return {**(self._base._all() if self._base else {}), **self._own}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._all().values())

    def whole(self) -> set[Any]:
        """Return the overloads that export must not decompose; some are names."""
        named = {e.target for e in self if isinstance(e.target, str)}
        return named | {e.target for e in self if isinstance(e, Lowering)}

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """Return the overloads that have a decomposition in torch, with their functions."""
        known = (e for e in self if not isinstance(e.target, str))
        return {e.target: e.fn for e in known if isinstance(e, Decomposition)}


BUILTIN = Registry()
LINUX = Registry(BUILTIN)  # `targets.linux` adds its forms when it is imported
_BY_TARGET = {"": BUILTIN, "linux": LINUX}


def _registry_of(target: str, reason: str) -> Registry:
    if bool(target) != bool(reason):
        raise TypeError("pass target and reason together")
    return _BY_TARGET[target]


@cache
def builtin_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return the table for functions that are traced in the place of a node."""
    return decompositions.table(BUILTIN.whole(), BUILTIN.decompositions())


def lowers(
    *targets: Any,
    promote: Promote = Promote.NOT,
    ignore: Sequence[str] = (),
    cases: Sequence[Case] = (),
    target: str = "",
    reason: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the built-in lowering of one or more overloads.

    With a `target` such as "linux", the function replaces the plain form on that target only; the
    `reason` says what the plain form costs there. The cases of the plain form run under the target
    too.
    """
    registry = _registry_of(target, reason)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op in targets:
            registry.add(Lowering(op, fn, promote, ignore, cases, reason=reason))
        return fn

    return register


def lowers_function(
    *targets: Any, cases: Sequence[Case] = (), target: str = "", reason: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a lowering for targets without a schema: Python functions, higher-order ops.

    `target` and `reason` are those of `lowers`.
    """
    registry = _registry_of(target, reason)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op in targets:
            registry.add(FunctionLowering(op, fn, cases, reason=reason))
        return fn

    return register


def decomposes(
    *targets: Any, cases: Sequence[Case] = (), target: str = "", reason: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function in torch as the decomposition of one or more overloads.

    `target` and `reason` are those of `lowers`.
    """
    registry = _registry_of(target, reason)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op in targets:
            registry.add(Decomposition(op, fn, cases, reason=reason))
        return fn

    return register
