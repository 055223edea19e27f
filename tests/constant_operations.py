"""Find the ops of a program whose operands are all constants."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from coreai._compiler.ir import Block

from coreai_torch.asset.mlir_module import mlir_module_of

# The cast of a stored weight runs at each call, 3 ns for each element; 32 MB of float16 load in
# 45 ms, the same weights in float32 in 98 ms (coreai-core 1.0.0b3, x86).
_HALF = "a weight that is stored in half the bytes: the compiler does not fold it"
VIEWS = ("coreai.transpose", "coreai.reshape", "coreai.expand_dims", "coreai.shrink_dims")
ALLOWED = {
    "coreai.range": "the compiler does not fold it: a causal mask of 8,192 x 8,192 loads in 25 ms",
    "coreai.broadcast_to": "a fill: the compiler does not fold it, and it takes no space",
    "coreai.blockwise_shift_scale": "a compressed weight",
    "coreai.build_sparse_with_bitmask": "a compressed weight",
    "coreai.constexpr_blockwise_shift_scale": "a compressed weight",
    "coreai.constexpr_lut_to_dense": "a compressed weight",
    "coreai.lut_to_dense": "a compressed weight",
    "coreai.sparse_to_dense": "a compressed weight",
    "coreai.sparsely_packed_to_dense": "a compressed weight",
    "coreai.dequantize": "a quantized weight",
    **dict.fromkeys(VIEWS, "a view of a weight, which is not copied"),
    "coreai.cast from f16": _HALF,
    "coreai.cast from bf16": _HALF,
    "coreai.cast from i1": "a large mask: the compiler does not fold it",
    "coreai.cast from si8": "a quantized weight: the compiler does not fold it",
    "coreai.cast from ui8": "a quantized weight: the compiler does not fold it",
    "coreai.invoke": "a call of a composite, whose body names the constants",
    "coreai.while": "a loop that starts from numbers",
}


def computed_late(program: Any) -> list[tuple[str, str]]:
    """Return the ops on constants alone that the converter should have evaluated."""
    return [
        (name, type_)
        for name, type_ in constant_operations(program)
        if name not in ALLOWED and _elements(type_) > 0
    ]


def _elements(type_: str) -> int:
    sizes = re.findall(r"(\d+)x", type_)
    return math.prod(map(int, sizes))


def constant_operations(program: Any) -> list[tuple[str, str]]:
    """Return the name and the result type of each op that has only constants as operands.

    A view of a constant counts as a constant. The name of a cast has the element type of the
    operand.
    """
    module = mlir_module_of(getattr(program, "program", program))
    return [
        (_name(op), str(op.results[0].type))
        for op in _operations(module.operation)
        if len(op.operands) and len(op.results) and all(map(_is_constant, op.operands))
    ]


def _name(op: Any) -> str:
    if op.name != "coreai.cast":
        return str(op.name)
    return f"{op.name} from {op.operands[0].type.element_type}"


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def _is_constant(operand: Any) -> bool:
    owner = operand.owner
    if isinstance(owner, Block):
        return False
    if owner.name in VIEWS:
        return _is_constant(owner.operands[0])
    return bool(owner.name == "coreai.constant")
