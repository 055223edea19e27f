"""Run the model itself in float64.

The decomposed graph would be wrong wherever its decomposition is: a program that repeats the
mistake would be nearer to it than torch is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..numerics.float64 import InFloat64, widened
from ..torch_compat import pytree
from .subject import ReferenceCall, Subject


@dataclass(frozen=True)
class ExactCall:
    """The outputs of one call in float64, and the states after it."""

    outputs: list[torch.Tensor]
    states: list[torch.Tensor]


def run_exact(subject: Subject, calls: Sequence[ReferenceCall]) -> ExactCall | None:
    """Return the results of the last of consecutive calls; None if the model fails in float64."""
    try:
        with torch.no_grad():
            return _run(subject, calls)
    except Exception:  # a kernel without float64, or code that checks its dtypes
        return None


def _run(subject: Subject, calls: Sequence[ReferenceCall]) -> ExactCall:
    module = subject.reference
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    tensors = {name: _copy(value) for name, value in named.items()}
    outputs: list[torch.Tensor] = []
    leaves: list[Any] = []
    mutated = subject.mutated_arguments()
    for number, call in enumerate(calls):
        before, leaves = leaves, [_copy(leaf) for leaf in call.leaves]
        if number:  # an argument that the model writes to continues from the last call
            for at in mutated:
                leaves[at] = before[at]
        args, kwargs = pytree.tree_unflatten(leaves, subject.exported.call_spec.in_spec)
        with InFloat64():
            result = torch.func.functional_call(module, tensors, args, kwargs)
        outputs = [torch.as_tensor(v) for v in pytree.tree_leaves(result) if _is_output(v)]
    places = {state: place for place, state in mutated.items()}
    states = [
        leaves[places[i]] if i in places else tensors[str(state.buffer)]
        for i, state in enumerate(subject.plan.states)
    ]
    return ExactCall([o.clone() for o in outputs], states)


def _is_output(value: Any) -> bool:
    return isinstance(value, torch.Tensor | bool | int | float)


def _copy(value: Any) -> Any:
    return widened(value.detach().clone()) if isinstance(value, torch.Tensor) else value
