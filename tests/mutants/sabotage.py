"""A registry in which one op is lowered wrongly."""

from __future__ import annotations

from typing import Any

from coreai_torch.ir.dialect import Value, cast
from coreai_torch.lowering import promotion
from coreai_torch.lowering.context import Ctx
from coreai_torch.lowering.promotion import Promote
from coreai_torch.lowering.registry import BUILTIN, Lowering, Registry
from coreai_torch.torch_compat import schema_of

from .kinds import Kind, NotApplicableError


class Sabotaged:
    """An entry that lowers as `inner` does and then spoils the first result.

    Without a kind it changes nothing. `only` restricts it to one node of the graph. `calls` counts
    how often it was spoiled.
    """

    def __init__(self, inner: Any, kind: Kind | None, only: str = "") -> None:
        self.inner, self.kind, self.only, self.calls = inner, kind, only, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, call: Any, lower_subgraph: Any) -> Any:
        if self.kind is None or (self.only and call.node.name != self.only):
            return self.inner(call, lower_subgraph)
        if self.kind.arguments is not None and isinstance(self.inner, Lowering):
            try:
                made = self._with_wrong_arguments(call, lower_subgraph)
            except NotApplicableError:
                if self.kind.result is None:
                    raise
            else:
                self.calls += 1
                return made
        if self.kind.result is None:
            raise NotApplicableError("the lowering is a decomposition or a function")
        made = self._spoiled(self.inner(call, lower_subgraph), call)
        self.calls += 1
        return made

    def _spoiled(self, result: Any, call: Any) -> Any:
        assert self.kind is not None
        assert self.kind.result is not None
        if isinstance(result, Value):
            return self.kind.result(result, call)
        if isinstance(result, list | tuple):
            for index, one in enumerate(result):
                if isinstance(one, Value):
                    wrong = self.kind.result(one, call)
                    return [*result[:index], wrong, *result[index + 1 :]]
        raise NotApplicableError("the result is not a tensor")

    def _with_wrong_arguments(self, call: Any, lower_subgraph: Any) -> Any:
        """Lower as `Lowering` does, with one argument changed after binding."""
        assert self.kind is not None
        assert self.kind.arguments is not None
        inner = self.inner
        bound = inner.signature.bind(call)
        if self.kind.name == "axis":
            wrong = self.kind.arguments(bound, call)
        else:
            wrong = self.kind.arguments(bound, _defaults(inner))
        ctx = Ctx(call, lower_subgraph)
        args = promotion.promoted(inner.promote, inner.signature, call.node, wrong)
        result = inner.fn(ctx, **args)
        if inner.promote is Promote.NOT or not isinstance(result, Value):
            return result
        return cast(result, ctx.out_dtype)


def _defaults(lowering: Lowering) -> dict[str, Any]:
    """Return the default of each optional argument, by the parameter that takes it."""
    optional = {
        a.name: a.default_value
        for a in schema_of(lowering.target).arguments
        if a.has_default_value()
    }
    taken = (p for p in lowering.signature.params if p.into is not None)
    return {str(p.into): optional[p.name] for p in taken if p.name in optional}


def registry_with(name: str, kind: Kind | None, only: str = "") -> tuple[Registry, Sabotaged]:
    """Return the built-in registry with one op sabotaged, and its entry."""
    entry = Sabotaged(BUILTIN.get(name), kind, only)
    registry = Registry(BUILTIN)
    registry.add(entry, name=name, override=True)
    return registry, entry
