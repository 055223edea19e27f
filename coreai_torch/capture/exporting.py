"""Export a model with `torch.export`, and decompose the exported program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import ConversionError, ExportError
from ..torch_compat import is_data_dependent
from .aliased_inputs import copy_aliases
from .constant_tracking import track_constants
from .dynamic_rnn import keep_rnn_lengths_dynamic
from .export_errors import check_exportable, explain
from .export_rewrites import rewrite_for_export
from .torch_output import quiet_torch

Export = Callable[[], torch.export.ExportedProgram]


@contextmanager
def export_context() -> Iterator[None]:
    """Apply the rewrites under which every model is exported."""
    with keep_rnn_lengths_dynamic(), rewrite_for_export():
        yield


def export(
    model: torch.nn.Module,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> torch.export.ExportedProgram:
    """Export a model; an error names the model.

    Sequence lengths stay dynamic, functions that read tensor values are rewritten, and a model
    that reads its own constants is exported with their values.
    """
    if args is None and kwargs is None:
        raise ExportError(
            f"no arguments to export {type(model).__name__} with\n"
            "  try   pass args=(...), a tuple of example inputs for its forward"
        )
    if isinstance(args, torch.Tensor):
        raise ExportError(
            f"args is one tensor, but the arguments of {type(model).__name__} are a tuple\n"
            "  try   pass args=(x,)"
        )
    given = (tuple(args or ()), dict(kwargs or {}))
    check_exportable(model, *given)
    arguments = given

    def run() -> torch.export.ExportedProgram:
        return torch.export.export(model, *arguments, dynamic_shapes=dynamic_shapes)

    with quiet_torch():
        try:
            with export_context():
                arguments = copy_aliases(arguments)
                return run()
        except Exception as cause:
            program = _export_with_constants(model, run)
            if program is not None:
                return program
            raise explain(model, *given, dynamic_shapes, cause) from cause


def call_export_fn(
    model: torch.nn.Module, export_fn: Callable[[torch.nn.Module], torch.export.ExportedProgram]
) -> torch.export.ExportedProgram:
    """Call a user's `export_fn(model)` with the rewrites of `export`."""
    try:
        with quiet_torch(), export_context():
            return export_fn(model)
    except ConversionError:
        raise
    except Exception as cause:
        if not is_data_dependent(cause):
            raise
        program = _export_with_constants(model, lambda: export_fn(model))
        if program is None:
            raise
        return program


def _export_with_constants(
    model: torch.nn.Module, run: Export
) -> torch.export.ExportedProgram | None:
    """Export a model that reads its own constants; None if that fails too."""
    try:
        with keep_rnn_lengths_dynamic(), track_constants(model) as constants, rewrite_for_export():
            program = run()
        if not constants.read:
            return program
        written = _written_buffers(program)
    except Exception:
        return None
    return None if constants.read.intersection(written) else program


def _written_buffers(program: torch.export.ExportedProgram) -> set[str]:
    if program.dialect == "TRAINING":  # its signature does not list writes in place
        with keep_rnn_lengths_dynamic():
            program = program.run_decompositions({})
    return set(program.graph_signature.buffers_to_mutate.values())


def reject_dynamic_shapes(dynamic_shapes: Any) -> None:
    """Raise if sizes are given for a program that is already exported."""
    if dynamic_shapes is not None:
        raise ExportError(
            "dynamic_shapes is for a model: an exported program has the sizes it was exported "
            "with\n  try   pass dynamic_shapes to torch.export.export(model, args, ...)"
        )


def decompose(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> torch.export.ExportedProgram:
    """Decompose a program with the table; dynamic sizes stay dynamic."""
    dynamic = dynamic_sizes(program)
    try:
        with quiet_torch(), keep_rnn_lengths_dynamic():
            decomposed = program.run_decompositions(dict(table))
    except Exception as cause:
        first = next(iter(str(cause).strip().splitlines()), "")
        raise ExportError(
            f"torch could not decompose the exported program: {type(cause).__name__}: {first}\n"
            "  try   call exported.run_decompositions(coreai_torch.get_decomp_table()) by itself: "
            "the error is chained, and the model's code must change"
        ) from cause
    reject_fixed_sizes(dynamic)
    return decomposed


def dynamic_sizes(program: torch.export.ExportedProgram) -> dict[str, torch.SymInt]:
    """Return the dynamic sizes of the inputs, by names such as `x.shape[0]`."""
    found: dict[str, torch.SymInt] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else ()
        found |= {f"{node.name}.shape[{i}]": s for i, s in enumerate(sizes) if not _is_fixed(s)}
    return found


def reject_fixed_sizes(before: Mapping[str, torch.SymInt]) -> None:
    """Raise if a size that was dynamic has one value now.

    A decomposition that reads a size as a number fixes it: `torch.triu_indices(x.shape[0], 4)`.
    torch does not report that, and the program would run at the exported size only.
    """
    fixed = {name: size for name, size in before.items() if _is_fixed(size)}
    if not fixed:
        return
    sizes = ", ".join(f"{name} = {size.node.expr}" for name, size in fixed.items())
    raise ExportError(
        f"a decomposition fixed sizes that were exported as dynamic: {sizes}\n"
        "  try   export these sizes as static, or pass decompositions={op: None} or another "
        "function for the op that reads them"
    )


def _is_fixed(size: int | torch.SymInt) -> bool:
    return isinstance(size, int) or bool(size.node.expr.is_number)
