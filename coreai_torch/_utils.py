"""Functions that lowerings of other programs import."""

from .compat.externalization import _EXTERNALIZE_NAMESPACE
from .compat.promotion import get_promoted_type
from .ir.composite import generate_composite_decl
from .lowering.legacy import get_operand, get_operands

__all__ = [
    "_EXTERNALIZE_NAMESPACE",
    "generate_composite_decl",
    "get_operand",
    "get_operands",
    "get_promoted_type",
    "print_graph",
]


def print_graph(program: object) -> None:
    """Print the MLIR module of a program."""
    print(program)  # noqa: T201  printing is the purpose
