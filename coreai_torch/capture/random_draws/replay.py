"""Run a model in torch with given random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...torch_compat import TorchDispatchMode
from ..eager import eager_failure
from ..wrapper import Wrapper
from . import generator
from .draw import Draw
from .rewriting import Rewritten
from .table import KINDS, decompositions, in_place


def reference(model: torch.nn.Module, rewritten: Rewritten) -> torch.nn.Module:
    """Return the model with the inputs of the rewritten program.

    It is the model itself, which reads its random numbers from the inputs. If that cannot follow
    the program, because the model draws in another order, it is the program in torch.
    """
    program = rewritten.program
    follower = Replay(model, rewritten)
    args, kwargs = program.example_inputs or ((), {})
    if program.example_inputs and eager_failure(follower, args, kwargs) is None:
        return follower
    module: torch.nn.Module = program.module()
    return module


class Replay(Wrapper):
    """A model that takes its random numbers, or a seed, as keyword arguments."""

    def __init__(self, model: torch.nn.Module, rewritten: Rewritten) -> None:
        super().__init__(model)
        self._draws, self._names = rewritten.draws, rewritten.names
        self._seeded = rewritten.seeded

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        given = [kwargs.pop(name) for name in self._names]
        with _Given(self._draws, given, self._seeded) as mode:
            result = self.wrapped(*args, **kwargs)
        if len(mode.used) != len(self._draws):
            raise RuntimeError(f"the model drew {len(mode.used)} times, not {len(self._draws)}")
        return result


class _Given(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """Return given numbers in place of random ones."""

    def __init__(self, draws: Sequence[Draw], given: Sequence[torch.Tensor], seeded: bool) -> None:
        super().__init__()
        self._draws, self._given, self._seeded = draws, given, seeded
        self.used: list[Draw] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in KINDS:
            size = args[2] if len(args) > 2 else args[0]
            return self._next(KINDS[func], list(size))
        for table in (decompositions(), in_place()):
            if func in table:
                with self:
                    made = table[func](*args, **named)
                if made is NotImplemented:
                    break
                return args[0].copy_(made) if table is in_place() else made
        return func(*args, **named)

    def _next(self, kind: str, size: list[int]) -> torch.Tensor:
        number = len(self.used)
        draw = self._draws[number] if number < len(self._draws) else None
        if draw is None or draw.kind != kind or len(draw.size) != len(size):
            raise RuntimeError("the model draws other random numbers than the program")
        self.used.append(draw)
        if self._seeded:
            return generator.sample(self._given[0], draw, size)
        given = self._given[number]
        if list(given.shape) != size:
            raise RuntimeError(f"{size} random numbers are needed, not {list(given.shape)}")
        return given.clone()
