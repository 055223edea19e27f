"""Run a kernel's Metal source on the CPU, alone or in comparison with its reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import KernelError
from ..ir.metal import Kernel, Operand, generate
from ..torch_compat import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from . import checks, emulator
from .definition import Definition
from .emulator import Constants
from .source import Source
from .verification import Verification, compared

_EMULATING: ContextVar[str] = ContextVar("emulating", default="")


@contextmanager
def emulated(*, verify: bool = False) -> Iterator[None]:
    """Run the Metal source instead of the reference in every call of a kernel.

    This applies to eager models and to exported programs. With `verify`, each call is also
    compared with its reference and its memory accesses are checked; errors raise `KernelError`.
    """
    token = _EMULATING.set("verify" if verify else "run")
    try:
        yield
    finally:
        _EMULATING.reset(token)


def run_source(
    source: str,
    entry: str,
    inputs: Sequence[torch.Tensor],
    results: Sequence[tuple[Sequence[int], torch.dtype]],
    *,
    threads_per_grid: Sequence[int],
    threads_per_thread_group: Sequence[int],
    timeout: float = 300.0,
) -> list[torch.Tensor]:
    """Run a complete Metal source, such as that of a kernel op in a program.

    `results` contains the shape and dtype of each result. Numbers are passed as rank-0 tensors.
    """
    launch = emulator.Launch(
        checks.threads(entry, "threads_per_grid", list(threads_per_grid)),
        checks.threads(entry, "threads_per_thread_group", list(threads_per_thread_group)),
        [shape for shape, _ in results],
        [dtype for _, dtype in results],
        {},
        timeout,
    )
    parsed = Source(entry, entry, source, (("source", source),))
    operands = [emulator.to_operand(tensor) for tensor in inputs]
    outcome = emulator.run(parsed, operands, launch, checked=False)
    if outcome.findings:
        raise KernelError(f"Metal kernel {entry!r}: {outcome.findings[0]}")
    return outcome.results


@dataclass(frozen=True)
class Runner:
    """A kernel and its reference, ready to run."""

    kernel: Kernel
    definition: Definition

    def call(self, given: Sequence[Any], launched: Sequence[Any]) -> list[torch.Tensor]:
        """Run the reference or, inside of `emulated`, the source."""
        how = _EMULATING.get()
        if not how:
            results = self.definition.results(self.definition.fn(*given))
            checks.results(self.kernel, results, launched[2:])
            return results
        if how == "verify":
            found = self.verify(given, launched)
            if not found:
                raise KernelError(repr(found))
        return self.emulate(given, launched)

    def emulate(
        self,
        given: Sequence[Any],
        launched: Sequence[Any],
        constants: Constants | None = None,
        timeout: float = 300.0,
    ) -> list[torch.Tensor]:
        """Run the Metal source and return its results; raise for what the emulator finds."""
        outcome = self._run(given, launched, constants, timeout, checked=False)
        if outcome.findings:
            raise KernelError(f"Metal kernel {self.kernel.name!r}: {outcome.findings[0]}")
        return outcome.results

    def verify(
        self,
        given: Sequence[Any],
        launched: Sequence[Any],
        constants: Constants | None = None,
        timeout: float = 300.0,
        tolerance: float | None = None,
    ) -> Verification:
        """Run the source with checks, then the reference, and compare."""
        outcome = self._run(given, launched, constants, timeout, checked=True)
        differences = []
        if outcome.results:
            names = self.kernel.results
            differences = compared(names, outcome.results, self._reference, given, tolerance)
        return Verification(self.kernel.name, tuple(outcome.findings), tuple(differences))

    def _reference(self, *given: Any) -> Sequence[torch.Tensor]:
        return self.definition.results(self.definition.fn(*given))

    def _run(
        self,
        given: Sequence[Any],
        launched: Sequence[Any],
        constants: Constants | None,
        timeout: float,
        *,
        checked: bool,
    ) -> emulator.Outcome:
        grid, group, *shapes = launched
        dtypes = self._dtypes(given, shapes)
        inputs = [emulator.to_operand(g) for g in given]
        takes = [Operand(t.dim(), t.dtype) for t in inputs]
        gives = [Operand(len(s), d) for s, d in zip(shapes, dtypes, strict=True)]
        source = Source.of(self.kernel.name, generate(self.kernel, takes, gives))
        launch = emulator.Launch(grid, group, shapes, dtypes, constants or {}, timeout)
        return emulator.run(source, inputs, launch, checked=checked)

    def _dtypes(self, given: Sequence[Any], shapes: Sequence[Any]) -> list[torch.dtype]:
        """Return the dtypes of the results from the reference, and check the shapes."""
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fakes = [mode.from_tensor(g) if isinstance(g, torch.Tensor) else g for g in given]
                results = self.definition.results(self.definition.fn(*fakes))
        except (DataDependentOutputException, DynamicOutputShapeException):
            results = self.definition.results(self.definition.fn(*given))
        checks.results(self.kernel, results, shapes)
        return [result.dtype for result in results]
