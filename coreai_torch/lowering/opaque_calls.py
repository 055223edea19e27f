"""Put the computation of modules that were externalized by hand back into an exported graph."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..capture.copying import with_graph
from ..errors import ExternalizeError
from ..passes.externalize.by_hand import ExternalizedProgram, opaque_calls
from ..passes.externalize.mark import marked
from ..passes.externalize.spec import Match
from .inline import trace


def restored(
    program: torch.export.ExportedProgram,
    externalized: Sequence[ExternalizedProgram],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> tuple[torch.export.ExportedProgram, list[Match]]:
    """Return a copy of the program with the computation of each opaque call between marks."""
    by_op = {record.op_name: record for record in externalized}
    found = [record.patched.match for record in externalized]
    module = fx.GraphModule(program.graph_module, copy.deepcopy(program.graph_module.graph))
    module.meta = program.graph_module.meta
    for node in opaque_calls(module):
        record = by_op.get(node.target._opname)
        if record is None:
            raise ExternalizeError(
                f"the program calls {node.target}, which is not among the externalized programs\n"
                "  try   pass the result of _subexport_and_restore(model, exported_program)"
            )
        with marked(found):
            traced, inputs = trace(record.patched.compute, node, decompositions)
        _inline(module, node, traced, inputs)
    module.recompile()
    return with_graph(program, module), found


def _inline(
    module: fx.GraphModule, node: fx.Node, traced: fx.GraphModule, inputs: Sequence[fx.Node]
) -> None:
    """Replace a call that returns a list by the nodes of a graph."""
    placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
    copies: dict[fx.Node, fx.Node] = dict(zip(placeholders, inputs, strict=True))
    results: Sequence[Any] = ()
    with node.graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "output":
                results = [copies[n] for n in inner.args[0]]
            elif inner.op == "get_attr":
                name = f"_externalized_{node.name}_{str(inner.target).replace('.', '_')}"
                value = operator.attrgetter(str(inner.target))(traced)
                setattr(module, name, value)
                copies[inner] = node.graph.get_attr(name)
                copies[inner].meta = dict(inner.meta)
            elif inner.op != "placeholder":
                copies[inner] = node.graph.node_copy(inner, copies.__getitem__)
    for user in list(node.users):  # getitem
        result, name = results[user.args[1]], user.name
        user.replace_all_uses_with(result)
        node.graph.erase_node(user)
        result.name = name  # the signature of the program names the outputs
    node.graph.erase_node(node)
