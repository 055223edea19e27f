"""Find casts to integers that torch leaves undefined: of infinities, NaN and numbers out of range.

`torch.tensor(torch.inf).long()` gives the smallest integer, zero or another number, depending on
the processor; the runtime gives the largest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..capture.feeding import feed

_CASTS = ("_to_copy", "convert_element_type")
_WIDEST = torch.int32  # of a program: 64 bits become 32


def has_undefined_cast(program: torch.export.ExportedProgram, leaves: Sequence[Any]) -> bool:
    """Return whether a float that no integer of the program can represent is cast to one."""
    casts = {node for node in program.graph.nodes if _is_cast(node)}
    if not casts:
        return False
    run = _Run(program.graph_module, casts)
    try:
        with torch.no_grad():
            run.run(*feed(program, leaves), enable_io_processing=False)
    except (RuntimeError, NotImplementedError):  # a custom op whose kernel runs elsewhere
        return False
    return run.found


def _is_cast(node: fx.Node) -> bool:
    if node.op != "call_function" or not any(name in str(node.target) for name in _CASTS):
        return False
    before, after = (n.meta.get("val") for n in (node.all_input_nodes or [node])[:1] + [node])
    return (
        isinstance(before, torch.Tensor)
        and isinstance(after, torch.Tensor)
        and before.is_floating_point()
        and not after.is_floating_point()
        and not after.is_complex()
        and after.dtype != torch.bool
    )


class _Run(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(self, module: fx.GraphModule, casts: set[fx.Node]) -> None:
        super().__init__(module)
        self._casts, self.found = casts, False

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; look at the operand of a cast first."""
        if n in self._casts:
            value = self.env[n.all_input_nodes[0]]
            self.found |= _is_out_of_range(value, n.meta["val"].dtype)
        return super().run_node(n)


def _is_out_of_range(value: torch.Tensor, dtype: torch.dtype) -> bool:
    limits = torch.iinfo(dtype if dtype.itemsize < _WIDEST.itemsize else _WIDEST)
    wide = value.double()
    inside = (wide > limits.min - 1) & (wide < limits.max + 1)  # NaN is not inside
    return not bool(inside.all())
