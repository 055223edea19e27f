"""Remove the debug info of a program."""

from __future__ import annotations

from coreai.authoring import AIProgram

from ..asset.mlir_module import mlir_module_of, strip
from ..errors import ArgumentTypeError


def strip_debug_info(program: AIProgram) -> AIProgram:
    """Remove file names, source lines, FX nodes and module paths in place; ops do not change.

    For a saved asset use `coreai-torch strip`.
    """
    if not isinstance(program, AIProgram):
        raise ArgumentTypeError(
            f"strip_debug_info takes an AIProgram, not a {type(program).__name__}\n"
            "  try   pass the converted program; run coreai-torch strip on an asset"
        )
    strip(mlir_module_of(program))
    return program
