"""Takes the debug info out of a program."""

from __future__ import annotations

from coreai.authoring import AIProgram

from ..ir.program import mlir_module_of, strip


def strip_debug_info(program: AIProgram) -> AIProgram:
    """Remove file names, source lines, FX nodes and module paths, in place; ops stay as they are.

    For a saved asset there is `coreai-torch strip`.
    """
    strip(mlir_module_of(program))
    return program
