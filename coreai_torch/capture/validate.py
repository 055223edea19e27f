"""Find what prevents a program from being lowered, and report all of it in one error."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import REGISTER_HINT, NotDecomposedError, describe, target_name, unsupported
from ..fx.liveness import live_nodes
from ..torch_compat import OpOverload, has_composite_kernel, schema_of
from . import torch_faults
from .random_draws import RANDOM_OPS

# Ops that occur in training mode only, and what they do.
_TRAINING = {
    "aten::_batch_norm_with_update": "updates the running statistics",
    "aten::_batch_norm_with_update_functional": "updates the running statistics",
}
KERNELS = "coreai_kernels"  # the namespace of the torch ops that Metal kernels define


@dataclass(frozen=True)
class Rules:
    """The ops that a converter lowers, and the table that decomposes the others."""

    supports: Callable[[fx.Node], bool]
    table: Callable[[], Mapping[Any, Callable[..., Any]]]  # a function: torch needs 60 ms for it
    table_name: str = "coreai_torch.get_decomp_table()"  # for error messages


def calls(module: fx.GraphModule, include_dead: bool = False) -> Iterator[fx.Node]:
    """Yield every call in a graph and in the subgraphs of its control flow."""
    live = module.graph.nodes if include_dead else live_nodes(module.graph)
    for node in module.graph.nodes:
        if node not in live:
            continue
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr":
            value = operator.attrgetter(node.target)(module)
            if isinstance(value, fx.GraphModule):
                yield from calls(value, include_dead)


def check(program: torch.export.ExportedProgram, rules: Rules) -> list[fx.Node]:
    """Raise if the program was not decomposed; return the calls that cannot be lowered yet."""
    live = list(calls(program.graph_module))
    torch_faults.repair(live)
    nodes, missing = _find_problems(program, live, rules)
    if nodes:
        raise NotDecomposedError(_undecomposed_message(nodes, rules.table_name))
    return missing


def reject(missing: Sequence[fx.Node]) -> None:
    """Raise one error for all calls without a lowering."""
    if missing:
        raise unsupported([(node, hint(node)) for node in missing])


def undecomposed(program: torch.export.ExportedProgram, rules: Rules) -> list[fx.Node]:
    """Return the calls that `run_decompositions` with the table would replace."""
    return _find_problems(program, list(calls(program.graph_module)), rules)[0]


def _find_problems(
    program: torch.export.ExportedProgram, live: list[fx.Node], rules: Rules
) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the live calls that need to be decomposed, and all that cannot be lowered."""
    if program.dialect == "TRAINING":  # straight from `torch.export.export`
        implicit = [node for node in live if _implicit(node.target)]
        # The result of `y[0].zero_()` is unused, so liveness would drop the write to `y`.
        writes = [n for n in calls(program.graph_module, True) if _in_place(n.target)]
        if implicit or writes:
            return implicit + writes, []
    missing = [
        node for node in live if node.target is not operator.getitem and not rules.supports(node)
    ]
    table = rules.table() if missing else {}
    return [n for n in missing if n.target in table or _in_place(n.target)], missing


def _implicit(target: Any) -> bool:
    """Return whether torch decomposes the op by default (CompositeImplicitAutograd)."""
    if not isinstance(target, OpOverload) or target.name().startswith("aten::sym_"):
        return False
    return has_composite_kernel(target)


def _in_place(target: Any) -> bool:
    return isinstance(target, OpOverload) and bool(schema_of(target).is_mutable)


def _undecomposed_message(nodes: list[fx.Node], table_name: str) -> str:
    names = sorted({target_name(node.target) for node in nodes})
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return describe(
        nodes[0],
        f"the exported program was not decomposed: it still contains {shown}",
        f"call exported_program.run_decompositions({table_name}) before adding it",
    )


def hint(node: fx.Node) -> str:
    """Return the `try` line for an op that has no lowering."""
    if isinstance(node.target, OpOverload) and node.target.name() in _TRAINING:
        effect = _TRAINING[node.target.name()]
        return f"call model.eval() before exporting: training mode {effect}"
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        if node.target not in RANDOM_OPS:
            return "pass random numbers as an input: a converted program cannot draw them"
        return (
            'pass random="input" to convert, with which random numbers become inputs, or '
            'random="seed", with which the program computes them of a seed'
        )
    if isinstance(node.target, OpOverload) and node.target.namespace == "aten":
        return REGISTER_HINT + ", or write the computation with other ops"
    if isinstance(node.target, OpOverload) and node.target.namespace == KERNELS:
        kernel = node.target.overloadpacket.__name__
        return (
            f"call TorchConverter.register_custom_kernels([...]) with the Metal kernel {kernel!r} "
            "before adding the program"
        )
    return REGISTER_HINT
