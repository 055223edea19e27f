"""A model to a decomposed program, in one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import ExportError
from .aliased_inputs import told_apart
from .constant_tracking import known_values
from .dynamic_rnn import open_lengths
from .export_rewrites import without_asking

_SHOWN = 4  # lines of torch's own message


def exported(
    model: torch.nn.Module,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """`torch.export` with lengths left open and values not asked for; failures name the model."""
    if args is None and kwargs is None:
        raise ExportError(
            f"no arguments to export {type(model).__name__} with\n"
            "  try   args=(...), a tuple of example inputs for its forward"
        )
    if isinstance(args, torch.Tensor):
        raise ExportError(
            f"args is one tensor, but the arguments of {type(model).__name__} are a tuple\n"
            "  try   args=(x,)"
        )
    how = (tuple(args or ()), dict(kwargs or {}))
    try:
        with open_lengths(), without_asking():
            how = told_apart(how)
            return torch.export.export(model, *how, dynamic_shapes=dynamic_shapes)
    except Exception as cause:
        program = _by_known_values(model, how, dynamic_shapes)
        if program is not None:
            return program
        told = [line.strip() for line in str(cause).splitlines() if line.strip()]
        first = "\n        ".join(told[:_SHOWN])
        raise ExportError(
            f"torch.export could not export {type(model).__name__}: "
            f"{type(cause).__name__}: {first}\n"
            "  try   torch.export.export(model, args) by itself: the error is chained, and the "
            "model's code or its dynamic_shapes must change"
        ) from cause


def _by_known_values(
    model: torch.nn.Module, how: tuple[Any, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram | None:
    """A model that asks its own constants for values, which torch alone does not give it."""
    try:
        with open_lengths(), known_values(model) as known, without_asking():
            program = torch.export.export(model, *how, dynamic_shapes=dynamic_shapes)
        if not known.read:
            return program
        with open_lengths():  # only a program without writes in place tells what it wrote
            written = program.run_decompositions({}).graph_signature.buffers_to_mutate.values()
    except Exception:
        return None
    return None if known.read.intersection(written) else program


def check_fixed(dynamic_shapes: Any) -> None:
    """Refuse sizes for a program that was exported with its own: they would change nothing."""
    if dynamic_shapes is not None:
        raise ExportError(
            "dynamic_shapes is for a model: an exported program has the sizes it was exported "
            "with\n  try   torch.export.export(model, args, dynamic_shapes=...)"
        )


def decomposed(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> torch.export.ExportedProgram:
    """The program in the ops of the table, lengths of sequences still open."""
    try:
        with open_lengths():
            return program.run_decompositions(dict(table))
    except Exception as cause:
        told = next(iter(str(cause).strip().splitlines()), "")
        raise ExportError(
            f"torch could not decompose the exported program: {type(cause).__name__}: {told}\n"
            "  try   exported.run_decompositions(coreai_torch.get_decomp_table()) by itself: the "
            "error is chained, and the model's code must change"
        ) from cause
