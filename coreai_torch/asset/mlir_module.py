"""The raw MLIR module of a program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from coreai._compiler.ir import Module
from coreai._compiler.passmanager import PassManager
from coreai.authoring import AIProgram

from ..errors import ArgumentTypeError, ConversionError
from .states import restore_handles, stored_module

REWRITE = "builtin.module(coreai-pre-compilation-rewrite)"

# Removed from the rewrite. It moves the reshape of an operand behind the op that broadcasts it
# wherever the sizes still fit: `x @ w.view(8, 64)` with a `w` of `[8, 8, 8]` becomes a product with
# eight matrices, and `[?, ?] * v.view(1, 1)` comes out as `[1, 1]`.
UNSOUND = ",coreai.graph(core-elide-broadcast)"


def mlir_module_of(program: AIProgram) -> Any:
    """Return the raw module: an attribute of the program in 1.0.0b2, one level down in 1.0.0b3."""
    restore_handles(program)
    return stored_module(program)


def as_program(source: Any) -> Any:
    """Return a program for a raw module; a program, an asset or a path as it is."""
    return AIProgram._from_mlir_module(source) if isinstance(source, Module) else source


def optimize(module: Any) -> None:
    """Run the compiler's rewrite in place."""
    with module.context:
        pipeline = str(PassManager.parse(REWRITE)).replace(UNSOUND, "")
        PassManager.parse(pipeline).run(module.operation)


def strip(module: Any) -> None:
    """Remove all locations from a raw module."""
    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


def write_module(program: AIProgram, path: Path) -> None:
    """Write the module for another process; unlike `save_asset`, this folds no constants."""
    with path.open("wb") as file:
        mlir_module_of(program).operation.write_bytecode(file)


OPTIMIZE = "COREAI_TORCH_OPTIMIZE"  # environment variable: 1 optimizes in `to_coreai`, 0 never


def optimize_option(given: bool | None) -> bool | None:
    """Return the argument, or what the environment says: True, False, or None for at save."""
    if given is not None:
        if not isinstance(given, bool):
            raise ArgumentTypeError(f"optimize is {given!r}\n  try   pass True, False or None")
        return given
    text = os.environ.get(OPTIMIZE, "")
    if text not in ("", "0", "1"):
        raise ConversionError(f"{OPTIMIZE} is {text!r}\n  try   set it to 1 or 0")
    return None if text == "" else text == "1"
