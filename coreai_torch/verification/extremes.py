"""Which ops of a program may differ from torch at infinities, division by zero and overflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ..asset.metadata import FORM, annotation
from ..errors import ConversionError
from ..lowering.registry import BUILTIN, WITHOUT_EXACT, key
from ..numerics.bisect import ancestors
from ..numerics.compare import widen
from ..torch_compat import HigherOrderOperator, OpOverload, pytree
from .limits import feed_of
from .subject import ReferenceCall, Subject

_LARGE = 1e18  # from here on squares may overflow in float32


def inexact_ops(exported: torch.export.ExportedProgram, program: Any) -> tuple[str, ...]:
    """Return the ops whose plain form differs at extremes; none if it was made with `exact`."""
    try:
        if annotation(program, FORM).get("exact"):
            return ()
    except (ConversionError, OSError):  # whoever runs the program reports it
        return ()
    return tuple(dict.fromkeys(name for node in _calls(exported) for name in _inexact(node)))


def ops_at_extremes(
    subject: Subject, call: ReferenceCall, inexact: Sequence[str], wrong: Sequence[Any]
) -> tuple[str, ...]:
    """Return which of these ops compute with infinities, NaN or very large numbers in a call.

    Return none if one of the `wrong` results does not depend on them.
    """
    nodes = {n: [name for name in _inexact(n) if name in inexact] for n in _calls(subject.exported)}
    watch = _Watch(subject.exported.graph_module, {n: ops for n, ops in nodes.items() if ops})
    if watch.ops:
        feed = feed_of(subject, call)
        given = [feed[n] for n in subject.exported.graph.find_nodes(op="placeholder")]
        with torch.no_grad():
            watch.run(*given, enable_io_processing=False)
    for result in wrong:
        before = ancestors([result], lambda n: list(n.all_input_nodes))
        if before.isdisjoint(watch.found):
            return ()
    return tuple(dict.fromkeys(name for node in watch.found for name in watch.ops[node]))


class _Watch(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    """Runs a graph and notes ops that read or return an extreme number."""

    def __init__(self, module: fx.GraphModule, ops: dict[fx.Node, list[str]]) -> None:
        super().__init__(module)
        self.ops, self.found = ops, dict[fx.Node, None]()  # an ordered set

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and look at its operands and its result."""
        result = super().run_node(n)
        if n in self.ops:
            values = pytree.tree_leaves((self.fetch_args_kwargs_from_env(n), result))
            if any(map(_is_extreme, values)):
                self.found[n] = None
        return result


def _is_extreme(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    return not bool((widen(value).abs() <= _LARGE).all())  # nor is NaN


def _calls(exported: torch.export.ExportedProgram) -> Iterator[fx.Node]:
    return (node for node in exported.graph.nodes if node.op == "call_function")


def _inexact(node: fx.Node) -> Iterator[str]:
    """Yield the ops of a call, and of the branches and bodies that it runs, that differ."""
    if isinstance(node.target, HigherOrderOperator):
        owner = node.graph.owning_module
        for argument in node.all_input_nodes:
            body = getattr(owner, str(argument.target), None) if argument.op == "get_attr" else None
            if isinstance(body, fx.GraphModule):
                for inner in body.graph.nodes:
                    yield from _inexact(inner)
    elif isinstance(node.target, OpOverload) and _is_inexact(node.target):
        yield str(node.target)


def _is_inexact(target: Any) -> bool:
    function = getattr(BUILTIN.get(key(target)), "fn", None)
    return WITHOUT_EXACT in (getattr(function, "__doc__", None) or "")
