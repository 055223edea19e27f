"""The inputs of a captured graph: arguments, weights and constants, as its signature lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from ..errors import ExportError


def feed(program: torch.export.ExportedProgram, leaves: Sequence[Any]) -> list[Any]:
    """Return a value for each placeholder; tensors are copies, which the graph may write to."""
    stored = {**program.constants, **program.state_dict}
    given = iter(leaves)
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            values.append(spec.arg.value)
            if spec.kind is InputKind.USER_INPUT:
                next(given, None)
        elif spec.kind is InputKind.USER_INPUT:
            values.append(_copied(next(given)))
        elif spec.target in stored:
            values.append(_copied(stored[spec.target]))
        else:
            raise ExportError(f"the input {spec.arg.name!r} has no stored value")
    return values


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
