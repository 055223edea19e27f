"""What a converter is given must be of the kind it stages."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ArgumentTypeError, ConversionError, ExportError

_DECOMPOSED = ".run_decompositions(coreai_torch.get_decomp_table())"
_FUNCTION = f"lambda m: torch.export.export(m, args){_DECOMPOSED}"


def check_program(given: Any) -> None:
    """Refuse anything but an exported program."""
    if not isinstance(given, torch.export.ExportedProgram):
        raise ConversionError(
            f"add_exported_program takes an ExportedProgram, not a {type(given).__name__}\n"
            f"  try   torch.export.export(model, args){_DECOMPOSED}"
        )


def check_module(module: Any, export_fn: Any) -> None:
    """Refuse anything but a module and a function to export it with."""
    if not isinstance(module, torch.nn.Module):
        raise ExportError(
            f"add_pytorch_module takes an nn.Module, not a {type(module).__name__}\n"
            "  try   add_exported_program for a program that is exported already"
        )
    if not callable(export_fn):
        raise ArgumentTypeError(f"export_fn is {export_fn!r}\n  try   {_FUNCTION}")


def check_returned(program: Any) -> None:
    """Refuse what a caller's function made of a module, if it is no exported program."""
    if not isinstance(program, torch.export.ExportedProgram):
        raise ExportError(
            f"export_fn returned a {type(program).__name__}, not an ExportedProgram\n"
            f"  try   {_FUNCTION}"
        )
