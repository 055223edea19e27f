"""Takes the debug info out of a program."""

from __future__ import annotations

from coreai.authoring import AIProgram

from ..asset.program import mlir_module_of, strip
from ..errors import ArgumentTypeError


def strip_debug_info(program: AIProgram) -> AIProgram:
    """Remove file names, source lines, FX nodes and module paths, in place; ops stay as they are.

    For a saved asset there is `coreai-torch strip`.
    """
    if not isinstance(program, AIProgram):
        raise ArgumentTypeError(
            f"a {type(program).__name__} is no AIProgram\n"
            "  try   the program that was converted; coreai-torch strip for an asset"
        )
    strip(mlir_module_of(program))
    return program
