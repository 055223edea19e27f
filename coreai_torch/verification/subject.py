"""The reference of a verification: torch's run of the model, call after call."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..capture.io_plan import IOPlan, State
from ..capture.random_draws import draw_of
from ..errors import VerificationInputError
from ..fx.programs import user_inputs
from ..stopwatch import Stopwatch
from ..torch_compat import pytree
from .reference import DeviceReference

Leaves = list[Any]  # the arguments of `forward`, flattened


@dataclass(frozen=True)
class ReferenceCall:
    """One call in torch: the arguments, the states before and after, and the outputs."""

    leaves: Leaves
    states_before: list[torch.Tensor]
    outputs: list[torch.Tensor]
    states: list[torch.Tensor]
    seconds: float = 0.0


@dataclass(frozen=True)
class Subject:
    """An exported program, its I/O plan, and the module that torch runs as the reference."""

    exported: torch.export.ExportedProgram  # decomposed, as converted
    plan: IOPlan
    reference: torch.nn.Module
    device_reference: DeviceReference | None = None  # runs `reference` on another device

    @property
    def note(self) -> str:
        """Why the model ran on the CPU, if it was requested to run elsewhere."""
        return self.device_reference.note if self.device_reference is not None else ""

    @property
    def arguments(self) -> list[fx.Node]:
        """The placeholders of the arguments of `forward`, in the order of the leaves."""
        given = set(user_inputs(self.exported))
        nodes = self.exported.graph.nodes
        return [n for n in nodes if n.op == "placeholder" and n.name in given]

    def leaves(self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> Leaves:
        """Return the arguments as a flat list; without any, those of the export."""
        example_args, example_kwargs = self.exported.example_inputs or (None, None)
        if args is None and kwargs is None:
            if example_args is None:
                raise VerificationInputError(
                    "the exported program has no example inputs\n  try   pass args=(...)"
                )
            args, kwargs = example_args, example_kwargs
        order = list(example_kwargs or kwargs or {})
        drawn = {node.name for node in self.arguments if draw_of(node) is not None}
        examples = {k: v for k, v in (example_kwargs or {}).items() if k in drawn}
        given = {**examples, **(kwargs or {})}
        named = {k: given[k] for k in order if k in given}
        flat: Leaves = pytree.tree_leaves((tuple(args or ()), named), is_leaf=lambda x: x is None)
        expected = self.arguments
        if len(flat) != len(expected):
            raise VerificationInputError(
                f"{len(flat)} arguments were given, but forward takes {len(expected)}: "
                f"{[n.name for n in expected]}\n  try   pass args and kwargs as for the model"
            )
        return flat

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Restore the states of the model afterwards."""
        saved = self._buffers()
        try:
            yield
        finally:
            self._restore(saved)

    def calls(self, leaves_of: Callable[[int], Leaves], steps: int) -> list[ReferenceCall]:
        """Make several calls on one state in torch; `leaves_of` gives the arguments of each."""
        mutated = self.mutated_arguments()
        made: list[ReferenceCall] = []
        with self.untouched(), torch.no_grad():
            for step in range(steps):
                leaves = [_copy(leaf) for leaf in leaves_of(step)]
                if made:  # an argument that the model writes to continues from the last call
                    for at, state in mutated.items():
                        leaves[at] = made[-1].states[state].clone()
                made.append(self._call(leaves))
        return made

    def _call(self, leaves: Leaves) -> ReferenceCall:
        # Not the wall time, which is long on a busy machine: the error analysis would make fewer
        # runs, too few for the limits of single elements.
        clock = time.thread_time if self.device_reference is None else time.perf_counter
        before, watch = self._states(leaves), Stopwatch(clock)
        given = [_copy(leaf) for leaf in leaves]
        result = self.run(given)
        outputs = [
            _copy(torch.as_tensor(leaf))
            for leaf in pytree.tree_leaves(result)
            if isinstance(leaf, torch.Tensor | bool | int | float)
        ]
        seconds = watch.seconds
        return ReferenceCall(leaves, before, outputs, self._states(given), seconds)

    def run(self, leaves: Leaves) -> Any:
        """Run the model in torch."""
        args, kwargs = pytree.tree_unflatten(leaves, self.exported.call_spec.in_spec)
        return (self.device_reference or self.reference)(*args, **kwargs)

    def mutated_arguments(self) -> dict[int, int]:
        """Map the index of each argument that is state to the index of the state."""
        arguments = self.arguments
        return {
            arguments.index(state.node): i
            for i, state in enumerate(self.plan.states)
            if state.node in arguments
        }

    def _states(self, leaves: Leaves) -> list[torch.Tensor]:
        places = {state: at for at, state in self.mutated_arguments().items()}
        return [
            _copy(leaves[places[i]] if i in places else self._buffer(state))
            for i, state in enumerate(self.plan.states)
        ]

    def _buffer(self, state: State) -> torch.Tensor:
        buffer: torch.Tensor = operator.attrgetter(str(state.buffer))(self.reference)
        return buffer

    def _buffers(self) -> list[torch.Tensor | None]:
        inside = self.mutated_arguments().values()
        return [
            None if i in inside else _copy(self._buffer(state))
            for i, state in enumerate(self.plan.states)
        ]

    def _restore(self, saved: list[torch.Tensor | None]) -> None:
        with torch.no_grad():
            for state, value in zip(self.plan.states, saved, strict=True):
                if value is not None:
                    self._buffer(state).copy_(value)


def _copy(leaf: Any) -> Any:
    """Return a copy of a tensor, or the value itself."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
