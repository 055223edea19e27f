"""Lower a call of a kernel's torch op to a kernel op of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir import metal, types
from ..ir.dialect import Value, cast, constant
from ..lowering.binding import Call
from ..lowering.cases import Case
from ..lowering.entry import LowerSubgraph
from ..torch_compat import schema_of
from .definition import Definition, Returns

_SCALAR_DTYPES = {int: torch.int32, float: torch.float32, bool: torch.bool}


@dataclass(frozen=True)
class KernelLowering:
    """The entry of one kernel in a converter's registry."""

    target: Any
    kernel: metal.Kernel
    definition: Definition
    origin: str = "registered"
    cases: Sequence[Case] = ()

    def __call__(self, call: Call, lower_subgraph: LowerSubgraph) -> Any:
        """Emit the kernel op with the node's arguments, grid and result shapes."""
        given = [call.scope.values_of(a) for a in _arguments(call.node)]
        count = len(self.kernel.inputs)
        promised = call.node.meta["val"]
        one = self.definition.returns is Returns.ONE
        results = metal.emit(
            self.kernel,
            [_operand(g, k) for g, k in zip(given, self.definition.kinds, strict=False)],
            given[count],
            given[count + 1],
            given[count + 2 :],
            [types.ranked(v) for v in ([promised] if one else promised)],
        )
        return results[0] if one else results


def _arguments(node: torch.fx.Node) -> list[Any]:
    """Return all arguments in the schema's order; none has a default."""
    names = [argument.name for argument in schema_of(node.target).arguments]
    args: tuple[Any, ...] = node.args
    return [args[i] if i < len(args) else node.kwargs[n] for i, n in enumerate(names)]


def _operand(value: Any, kind: type) -> Value:
    """Return a tensor unchanged, and a number as a rank-0 tensor, which is passed by value."""
    if kind is torch.Tensor:
        return value
    dtype = _SCALAR_DTYPES[kind]
    return cast(value, dtype) if isinstance(value, Value) else constant(kind(value), dtype)
