"""Put the computation of modules that were externalized by hand back into an exported graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import ExternalizeError
from ..fx.editing import inline
from ..fx.programs import copied_module, with_graph
from ..fx.tracing import trace
from ..passes.externalize.by_hand import ExternalizedProgram, opaque_calls
from ..passes.externalize.mark import marked
from ..passes.externalize.spec import Externalized


def restored(
    program: torch.export.ExportedProgram,
    externalized: Sequence[ExternalizedProgram],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> tuple[torch.export.ExportedProgram, list[Externalized]]:
    """Return a copy of the program with the computation of each opaque call between marks."""
    by_op = {record.op_name: record for record in externalized}
    found = [record.patched.match for record in externalized]
    module = copied_module(program.graph_module)
    for node in opaque_calls(module):
        record = by_op.get(node.target._opname)
        if record is None:
            raise ExternalizeError(
                f"the program calls {node.target}, which is not among the externalized programs\n"
                "  try   pass the result of _subexport_and_restore(model, exported_program)"
            )
        with marked(found):
            traced, inputs = trace(record.patched.compute, node, decompositions)
        inline(node, traced, inputs, f"_externalized_{node.name}")
    return with_graph(program, module), found
