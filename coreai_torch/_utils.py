"""Old names that other people's lowerings import; they live elsewhere."""

from .ir.composite import generate_composite_decl
from .lowering.legacy import get_operand, get_operands

__all__ = ["generate_composite_decl", "get_operand", "get_operands", "print_graph"]


def print_graph(program: object) -> None:
    """Print a program's module."""
    print(program)  # noqa: T201  printing is what was asked for
