"""Compatibility names that lowerings of other projects import."""

from .ir.composite import generate_composite_decl
from .lowering.legacy import get_operand, get_operands

__all__ = ["generate_composite_decl", "get_operand", "get_operands", "print_graph"]


def print_graph(program: object) -> None:
    """Print the MLIR module of a program."""
    print(program)  # noqa: T201  printing is the purpose
