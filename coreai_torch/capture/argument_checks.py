"""Check the types of the arguments that a converter stages."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ArgumentTypeError, ConversionError, ExportError

_DECOMPOSED = ".run_decompositions(coreai_torch.get_decomp_table())"
_FUNCTION = f"lambda m: torch.export.export(m, args){_DECOMPOSED}"


def check_program(argument: Any) -> None:
    """Raise unless the argument is an exported program."""
    if not isinstance(argument, torch.export.ExportedProgram):
        raise ConversionError(
            f"add_exported_program takes an ExportedProgram, not a {type(argument).__name__}\n"
            f"  try   pass torch.export.export(model, args){_DECOMPOSED}"
        )


def check_module(module: Any, export_fn: Any) -> None:
    """Raise unless the arguments are a module and a function that exports it."""
    if not isinstance(module, torch.nn.Module):
        raise ExportError(
            f"add_pytorch_module takes an nn.Module, not a {type(module).__name__}\n"
            "  try   call add_exported_program for a program that is already exported"
        )
    if not callable(export_fn):
        raise ArgumentTypeError(f"export_fn is {export_fn!r}\n  try   pass {_FUNCTION}")


def check_returned(program: Any) -> None:
    """Raise unless the user's `export_fn` returned an exported program."""
    if not isinstance(program, torch.export.ExportedProgram):
        raise ExportError(
            f"export_fn returned a {type(program).__name__}, not an ExportedProgram\n"
            f"  try   pass {_FUNCTION}"
        )
