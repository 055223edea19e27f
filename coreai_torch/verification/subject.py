"""What a program is held against: torch's own run of the model, call after call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.export.graph_signature import InputKind

from ..capture.io_plan import IOPlan, State
from ..errors import VerificationInputError
from ..torch_compat import pytree

Leaves = list[Any]  # the arguments of `forward`, flattened


@dataclass(frozen=True)
class ReferenceCall:
    """One call in torch: what went in, the states before it, and what came out."""

    leaves: Leaves
    states_before: list[torch.Tensor]
    outputs: list[torch.Tensor]
    states: list[torch.Tensor]


@dataclass(frozen=True)
class Subject:
    """An exported program, its ports, and the model or program that torch runs for it."""

    exported: torch.export.ExportedProgram  # decomposed, as the converter took it
    plan: IOPlan
    reference: torch.nn.Module

    @property
    def arguments(self) -> list[fx.Node]:
        """The placeholders of the arguments of `forward`, in the order of the leaves."""
        given = {
            getattr(spec.arg, "name", None)
            for spec in self.exported.graph_signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        }
        nodes = self.exported.graph.nodes
        return [n for n in nodes if n.op == "placeholder" and n.name in given]

    def leaves(self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> Leaves:
        """Arguments as a flat list; those that the model was exported with if none are given."""
        example_args, example_kwargs = self.exported.example_inputs or (None, None)
        if args is None and kwargs is None:
            if example_args is None:
                raise VerificationInputError(
                    "the exported program holds no example inputs\n  try   args=(...)"
                )
            args, kwargs = example_args, example_kwargs
        order = list(example_kwargs or kwargs or {})
        named = {k: (kwargs or {})[k] for k in order if k in (kwargs or {})}
        flat: Leaves = pytree.tree_leaves((tuple(args or ()), named), is_leaf=lambda x: x is None)
        expected = self.arguments
        if len(flat) != len(expected):
            raise VerificationInputError(
                f"{len(flat)} arguments were given, but forward takes {len(expected)}: "
                f"{[n.name for n in expected]}\n  try   args and kwargs as for the model"
            )
        return flat

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Put the states of the model back afterwards, whatever the calls did to them."""
        kept = self._buffers()
        try:
            yield
        finally:
            self._restore(kept)

    def calls(self, leaves_of: Callable[[int], Leaves], steps: int) -> list[ReferenceCall]:
        """Several calls on one state, in torch; `leaves_of` gives the arguments of each."""
        mutated = self._mutated()
        made: list[ReferenceCall] = []
        with self.untouched(), torch.no_grad():
            for step in range(steps):
                leaves = [_own(leaf) for leaf in leaves_of(step)]
                if made:  # an argument that the model writes to goes on as it was left
                    for at, state in mutated.items():
                        leaves[at] = made[-1].states[state].clone()
                made.append(self._call(leaves))
        return made

    def _call(self, leaves: Leaves) -> ReferenceCall:
        before = self._states(leaves)
        given = [_own(leaf) for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(given, self.exported.call_spec.in_spec)
        result = self.reference(*args, **kwargs)
        outputs = [
            _own(torch.as_tensor(leaf))
            for leaf in pytree.tree_leaves(result)
            if isinstance(leaf, torch.Tensor | bool | int | float)
        ]
        return ReferenceCall(leaves, before, outputs, self._states(given))

    def _mutated(self) -> dict[int, int]:
        """From the place of an argument that is state to the place of the state."""
        arguments = self.arguments
        return {
            arguments.index(state.node): i
            for i, state in enumerate(self.plan.states)
            if state.node in arguments
        }

    def _states(self, leaves: Leaves) -> list[torch.Tensor]:
        places = {state: at for at, state in self._mutated().items()}
        return [
            _own(leaves[places[i]] if i in places else self._buffer(state))
            for i, state in enumerate(self.plan.states)
        ]

    def _buffer(self, state: State) -> torch.Tensor:
        held: torch.Tensor = operator.attrgetter(str(state.buffer))(self.reference)
        return held

    def _buffers(self) -> list[torch.Tensor | None]:
        inside = self._mutated().values()
        return [
            None if i in inside else _own(self._buffer(state))
            for i, state in enumerate(self.plan.states)
        ]

    def _restore(self, kept: list[torch.Tensor | None]) -> None:
        with torch.no_grad():
            for state, value in zip(self.plan.states, kept, strict=True):
                if value is not None:
                    self._buffer(state).copy_(value)


def _own(leaf: Any) -> Any:
    """A copy that later writes do not reach."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
