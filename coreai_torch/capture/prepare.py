"""Capture a model: export it, decompose it if needed, and plan its inputs and outputs.

`convert`, `verify`, the command line, `llm` and the self-check all call `prepare`, so that each
accepts the same models and exported programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from ..errors import ArgumentTypeError, ExportError
from ..progress import Stages
from .assuming import Assuming, Assumption, export_assuming
from .exporting import decompose, export, reject_dynamic_shapes
from .io_plan import IOPlan, Names, plan
from .random_draws import RANDOM_OPS, Randomness, decompositions, reference, with_draws
from .scaled_noise import remove_scaled_noise
from .validate import Rules, undecomposed

Source: TypeAlias = "torch.nn.Module | torch.export.ExportedProgram | Captured"
_SILENT = Stages(None)


@dataclass(frozen=True)
class Captured:
    """A decomposed program, the plan of its inputs, states and outputs, and its source."""

    program: torch.export.ExportedProgram
    plan: IOPlan
    source: torch.nn.Module | torch.export.ExportedProgram
    original: Captured | None = None  # before its inputs or outputs were changed
    assumptions: Sequence[Assumption] = ()  # about the values of inputs

    @property
    def reference(self) -> torch.nn.Module:
        """Return the module whose results in torch are the expected ones."""
        source = self.source
        return source if isinstance(source, torch.nn.Module) else source.module()


def prepare(
    source: Source,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    rules: Rules,
    names: Names | None = None,
    stage: Stages = _SILENT,
    randomness: Randomness | None = None,
    assume: bool = False,
) -> Captured:
    """Return a decomposed program for a model or an exported program; a captured one as it is.

    A model is exported with `args`, `kwargs` and `dynamic_shapes`, and decomposed. An exported
    program is decomposed only if it contains ops that the decomposition table replaces and no
    lowering supports, whatever it was decomposed with before. With a source of random numbers,
    inputs for these follow those of the model. With `assume`, the values of the example decide
    branches and sizes of a model that torch rejects otherwise.
    """
    assumptions: Sequence[Assumption] = ()
    if isinstance(source, Captured):
        reject_dynamic_shapes(dynamic_shapes)
        return source if names is None else replace(source, plan=plan(source.program, names))
    if randomness is not None:
        rules = _with_random_ops(rules)
    if isinstance(source, torch.nn.Module):
        with stage("exporting"):
            try:
                program = export(source, args, kwargs, dynamic_shapes)
            except ExportError:
                if not assume:
                    raise
                given = (args or (), kwargs or {}, dynamic_shapes)
                program, assumptions = export_assuming(source, *given)
                source = Assuming(source, program)
        remove_scaled_noise(program)
        program = _decompose(program, rules, stage)
    elif isinstance(source, torch.export.ExportedProgram):
        reject_dynamic_shapes(dynamic_shapes)
        program = source
        if undecomposed(program, rules):
            program = _decompose(program, rules, stage)
    else:
        raise ArgumentTypeError(
            f"expected an nn.Module or an ExportedProgram, not a {type(source).__name__}\n"
            "  try   pass the model and its args: (model, (x,))"
        )
    if randomness is not None:
        rewritten = with_draws(program, randomness, rules.table())
        if rewritten.draws:
            inner = source if isinstance(source, torch.nn.Module) else source.module()
            program, source = rewritten.program, reference(inner, rewritten)
    planned = plan(program, names or Names())
    return Captured(program, planned, source, assumptions=assumptions)


def _with_random_ops(rules: Rules) -> Rules:
    """Return the rules of a conversion that also decomposes random ops."""
    return replace(
        rules,
        supports=lambda node: node.target not in RANDOM_OPS and rules.supports(node),
        table=lambda: {**rules.table(), **decompositions()},
    )


def _decompose(
    program: torch.export.ExportedProgram, rules: Rules, stage: Stages
) -> torch.export.ExportedProgram:
    with stage("decomposing", ops=len(program.graph.nodes)):
        return decompose(program, rules.table())
