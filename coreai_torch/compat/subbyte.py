"""Pack the weights of an exported program that use fewer bits than a byte."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch.export.graph_signature import InputKind

from ..capture.validate import calls
from ..compression import checks
from ..compression.subbyte import WIDTHS, Float4Tensor, IntxTensor, SubbyteTensor, UintxTensor

_SCALED = torch.ops.coreai.constexpr_blockwise_shift_scale.default
_TABLE = torch.ops.coreai.lut_to_dense.default


def inject_subbyte_tensors(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Replace compressed weights by tensors that store them packed, and return the program.

    The converter packs them anyway; here they take less memory before that.
    """
    signature = program.graph_signature
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    names = {spec.arg.name: spec.target for spec in signature.input_specs if spec.kind in kinds}
    for node in calls(program.graph_module):
        source = node.args[0] if node.target in (_SCALED, _TABLE) else None
        name = names.get(source.name) if isinstance(source, fx.Node) else None
        for stored in (program.state_dict, program.constants):
            if name in stored and not isinstance(stored[name], SubbyteTensor):
                stored[name] = _packed(node, stored[name])
    return program


def _packed(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with as few bits per element as the op that reads it allows."""
    if node.target is _TABLE:
        entries = int(_fake(node, 1).shape[-2])
        bits = next((b for b in WIDTHS if 2**b >= entries), None)
        return tensor if bits is None else UintxTensor.from_values(tensor, bits)
    given = [*node.args[4:5], node.kwargs.get("input_dtype")][0]
    kind = checks.data(_fake(node, 0), _fake(node, 1), given)
    if kind.is_float4 and tensor.dtype == torch.uint8:
        return Float4Tensor(tensor)
    if kind.numbers is None or kind.numbers.bits not in WIDTHS:
        return tensor
    cls = IntxTensor if kind.numbers.signed else UintxTensor
    return cls.from_values(tensor, kind.numbers.bits)


def _fake(node: fx.Node, place: int) -> Any:
    source: Any = node.args[place]
    return source.meta["val"]
