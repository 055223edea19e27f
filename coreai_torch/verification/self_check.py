"""Runs the cases that the built-in lowerings carry, on the machine they are installed on."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..asset.program import write_module
from ..capture.exporting import export
from ..capture.prepare import prepare
from ..converter import TorchConverter, capture_rules
from ..errors import ConversionError, NarrowingWarning, NativeError, target_name
from ..lowering.cases import Case, T
from ..lowering.registry import BUILTIN, key
from ..numerics.arrays import array, tensor
from ..numerics.compare import compare
from ..numerics.tolerance import limits
from .isolation import Isolated, ProgramFile


@dataclass(frozen=True)
class CaseResult:
    """One case of one op, before or after `optimize()`."""

    op: str
    case: int
    optimized: bool
    ok: bool
    told: str


@dataclass(frozen=True)
class CaseRun:
    """One case of one op that is to be run."""

    op: str
    target: Any
    number: int
    case: Case
    optimized: bool


def case_runs(pattern: str = "") -> list[CaseRun]:
    """Every run of the ops whose name contains the pattern, as `aten::trunc` or `aten.trunc`."""
    return [
        CaseRun(name, entry.target, number, case, optimized)
        for entry in BUILTIN
        if callable(entry.target) and any(pattern in n for n in _names(entry.target))
        for name in (key(entry.target),)
        for number, case in enumerate(entry.cases)
        if not case.void
        for optimized in (False, True)
    ]


def _names(target: Any) -> tuple[str, str]:
    """As it is registered, and as errors and lists write it."""
    return key(target), target_name(target)


def check_ops(pattern: str = "") -> Iterator[CaseResult]:
    """Run every case of the ops whose name contains the pattern, in one child process."""
    runner: Isolated | None = None
    try:
        for run in case_runs(pattern):
            told, runner = _tried(run.target, run.case, run.optimized, runner)
            yield CaseResult(run.op, run.number, run.optimized, not told, told)
    finally:
        if runner is not None:
            runner.close()


def _tried(
    target: Any, case: Case, optimized: bool, runner: Isolated | None
) -> tuple[str, Isolated | None]:
    """What is wrong, if anything, and the child to go on with."""
    model = _CaseModel(target, case)
    try:
        with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
            path = Path(folder) / "case.mlirbc"
            names = _converted(model, path)
            if runner is None or not runner.alive:
                runner = Isolated(ProgramFile(bytecode=path), optimize=optimized)
            else:
                runner.load(ProgramFile(bytecode=path), optimize=optimized)
            feeds = zip(names, model.feeds, strict=True)
            raw, _ = runner.call({n: array(v) for n, v in feeds}, {})
        got = [tensor(raw[name]) for name in runner.ports.outputs]
        return _differences(got, model.outputs(), case), runner
    except (ConversionError, NativeError) as error:
        return str(error), runner if runner is not None and runner.alive else None


def _converted(model: _CaseModel, path: Path) -> list[str]:
    converter = TorchConverter()
    exported = export(model, model.feeds, None, None)
    program = prepare(exported, rules=capture_rules(converter)).program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowingWarning)
        converted = converter.add_exported_program(program).to_coreai()
    write_module(converted, path)
    return [s.arg.name for s in program.graph_signature.input_specs if s.target is None]


def _differences(got: list[torch.Tensor], want: list[torch.Tensor], case: Case) -> str:
    allowed = limits()
    if case.tolerance is not None:
        allowed = dict.fromkeys(allowed, max(case.tolerance))
    errors = [
        compare(f"result {i}", g, w, allowed)
        for i, (g, w) in enumerate(zip(got, want, strict=True))
    ]
    return "; ".join(str(error) for error in errors if not error.ok)


class _CaseModel(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Calls one op with a case's arguments; constants of the case become buffers."""

    def __init__(self, target: Any, case: Case) -> None:
        super().__init__()
        self._target = target
        self.feeds: list[torch.Tensor] = []
        self._fixed = 0
        self._args = [self._placed(a) for a in case.args]
        self._kwargs = {k: self._placed(v) for k, v in case.kwargs.items()}

    def _placed(self, given: Any) -> Any:
        if isinstance(given, list):
            return [self._placed(g) for g in given]
        if not isinstance(given, T):
            return given
        made = given.make(len(self.feeds) + self._fixed)
        if given.constant:
            self.register_buffer(f"constant_{self._fixed}", made)
            self._fixed += 1
            return _Held(f"constant_{self._fixed - 1}")
        self.feeds.append(made)
        return _Fed(len(self.feeds) - 1)

    def forward(self, *inputs: torch.Tensor) -> Any:
        def given(placed: Any) -> Any:
            if isinstance(placed, list):
                return [given(p) for p in placed]
            if isinstance(placed, _Held):
                return getattr(self, placed.name)
            return inputs[placed.index] if isinstance(placed, _Fed) else placed

        kwargs = {k: given(v) for k, v in self._kwargs.items()}
        result = self._target(*(given(a) for a in self._args), **kwargs)
        return result + 0 if isinstance(result, int | torch.SymInt) else result

    def outputs(self) -> list[torch.Tensor]:
        """What torch gives."""
        result = self(*self.feeds)
        listed: Sequence[Any] = result if isinstance(result, list | tuple) else [result]
        return [torch.as_tensor(r) for r in listed if r is not None]


@dataclass(frozen=True)
class _Held:
    """A buffer of the model."""

    name: str


@dataclass(frozen=True)
class _Fed:
    """An input of the model."""

    index: int
