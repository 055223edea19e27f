"""Find the ops of a program whose operands are all constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coreai._compiler.ir import Block

from coreai_torch.asset.mlir_module import mlir_module_of


def constant_operations(program: Any) -> list[tuple[str, str]]:
    """Return the name and the result type of each op that has only constants as operands.

    The name of a cast has the element type of the operand.
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
    return not isinstance(operand.owner, Block) and operand.owner.name == "coreai.constant"
