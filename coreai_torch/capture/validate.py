"""Can this program be lowered? All that stands in the way, at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx

from ..errors import REGISTER_HINT, NotDecomposedError, describe, target_name, unsupported
from ..torch_compat import OpOverload, has_composite_kernel, schema_of
from . import torch_faults
from .liveness import live_nodes

# Ops that only training mode leaves in a program, and what they do there.
_TRAINING = {
    "aten::_batch_norm_with_update": "moves the running statistics",
    "aten::_batch_norm_with_update_functional": "moves the running statistics",
    "aten::native_dropout": "drops at random",
}
KERNELS = "coreai_kernels"  # the namespace of the torch ops that Metal kernels define
Supported = Callable[[fx.Node], bool]


def calls(module: fx.GraphModule, read_or_not: bool = False) -> Iterator[fx.Node]:
    """Every call in a graph and in the graphs that its control flow holds."""
    live = module.graph.nodes if read_or_not else live_nodes(module.graph)
    for node in module.graph.nodes:
        if node not in live:
            continue
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr":
            held = operator.attrgetter(node.target)(module)
            if isinstance(held, fx.GraphModule):
                yield from calls(held, read_or_not)


def check(
    program: torch.export.ExportedProgram,
    supported: Supported,
    table: Callable[[], Mapping[Any, Any]],
) -> None:
    """Raise one error for everything in the program that cannot be lowered."""
    every = list(calls(program.graph_module))
    torch_faults.repair(every)
    if program.dialect == "TRAINING":  # as `export` leaves it, before any decomposition
        implicit = [node for node in every if _implicit(node.target)]
        # Nothing reads the result of `y[0].zero_()`: it would go as dead, and `y` keep its row.
        writes = [n for n in calls(program.graph_module, read_or_not=True) if _in_place(n.target)]
        if implicit or writes:
            raise NotDecomposedError(_undecomposed(implicit + writes))
    missing = [
        node for node in every if node.target is not operator.getitem and not supported(node)
    ]
    if not missing:
        return
    replaced = table()  # asked for late: torch takes 60 ms to put it together
    undone = [node for node in missing if node.target in replaced or _in_place(node.target)]
    if undone:
        raise NotDecomposedError(_undecomposed(undone))
    raise unsupported([(node, way_out(node)) for node in missing])


def _implicit(target: Any) -> bool:
    """Whether torch takes the op apart itself, unless told to keep it whole."""
    if not isinstance(target, OpOverload) or target.name().startswith("aten::sym_"):
        return False
    return has_composite_kernel(target)


def _in_place(target: Any) -> bool:
    return isinstance(target, OpOverload) and bool(schema_of(target).is_mutable)


def _undecomposed(nodes: list[fx.Node]) -> str:
    names = sorted({target_name(node.target) for node in nodes})
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return describe(
        nodes[0],
        f"the exported program was not decomposed: it still holds {shown}",
        "exported_program.run_decompositions(coreai_torch.get_decomp_table()) before adding it",
    )


def way_out(node: fx.Node) -> str:
    """What a user can do about an op that has no lowering."""
    if isinstance(node.target, OpOverload) and node.target.name() in _TRAINING:
        return f"model.eval() before exporting: training mode {_TRAINING[node.target.name()]}"
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return "random numbers drawn by the caller and passed as an input: a program draws none"
    if isinstance(node.target, OpOverload) and node.target.namespace == "aten":
        return REGISTER_HINT + ", or write the computation with other ops"
    if isinstance(node.target, OpOverload) and node.target.namespace == KERNELS:
        kernel = node.target.overloadpacket.__name__
        return (
            f"TorchConverter.register_custom_kernels([...]) with the Metal kernel {kernel!r}, "
            "before adding the program"
        )
    return REGISTER_HINT
