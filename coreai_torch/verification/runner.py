"""What runs a function of a program."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from .isolation import Arrays, Ports


class Engine(StrEnum):
    """What runs a program."""

    AUTO = "auto"
    RUNTIME = "runtime"
    TORCH = "torch"


class Runner(Protocol):
    """Runs one function of a program."""

    ports: Ports

    @property
    def alive(self) -> bool:
        """Whether it can be called again."""

    def call(self, inputs: Arrays, states: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs, and the states after the call."""

    def close(self) -> None:
        """Release resources."""
