"""Find the weights of a program that are not those of the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from coreai.authoring import AIProgram

from ..asset import reading
from ..asset.changed_constants import ChangedConstant, changed_constants
from ..errors import ConversionError, NativeError
from ..ir.types import narrow
from .subject import Subject


def changed_weights(
    subject: Subject, program: Any, entrypoint: str, convert: Callable[[], AIProgram]
) -> tuple[ChangedConstant, ...]:
    """Compare the constants of a program with those of the model, which is converted again."""
    try:
        made, second = convert(), reading.read(program)
        found, same = _changes(subject, made, second, entrypoint)
        if not same:
            made.optimize()
            found, _ = _changes(subject, made, second, entrypoint)
    except (ConversionError, NativeError, OSError, KeyError):
        return ()
    return tuple(found)


def _changes(
    subject: Subject, made: AIProgram, second: reading.Program, entrypoint: str
) -> tuple[list[ChangedConstant], bool]:
    first = reading.read(made)
    return changed_constants(first, second, entrypoint, partial(_name, subject))


def _name(subject: Subject, value: torch.Tensor, module: str) -> str:
    """Return the path of the parameter or buffer with these elements, in any order of axes.

    Return an empty string if there are several that the module does not tell apart.
    """
    found, wanted = [], None
    for path, tensor in subject.plan.constants.values():
        if tensor.numel() != value.numel() or narrow(tensor.dtype) != value.dtype:
            continue
        wanted = _sorted(value) if wanted is None else wanted
        if torch.equal(_sorted(tensor.to(value.dtype)), wanted):
            found.append(path)
    inside = [path for path in found if path.rpartition(".")[0] == module]
    return inside[0] if len(inside) == 1 else (found[0] if len(found) == 1 else "")


def _sorted(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().cpu().flatten()
    return (torch.view_as_real(flat).flatten() if flat.is_complex() else flat).sort().values
