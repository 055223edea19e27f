"""Run the test cases of the built-in lowerings on the machine where they are installed."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..asset.mlir_module import write_module
from ..capture.exporting import export
from ..capture.prepare import prepare
from ..converter import TorchConverter, capture_rules
from ..errors import ConversionError, NarrowingWarning, NativeError, target_name
from ..lowering.cases import Case, T
from ..lowering.registry import BUILTIN, key
from ..numerics.arrays import array, tensor
from ..numerics.compare import compare
from ..numerics.one_op import OneOp
from ..numerics.output_error import OutputError
from ..numerics.tolerance import limits
from .isolation import Isolated, ProgramFile


@dataclass(frozen=True)
class CaseResult:
    """The result of one case of one op, before or after `optimize()`."""

    op: str
    case: int
    optimized: bool
    ok: bool
    problem: str  # empty if there is none; a key of `coreai-torch ops --check --json`


@dataclass(frozen=True)
class CaseRun:
    """One case of one op to run, before or after `optimize()`."""

    op: str
    target: Any
    number: int
    case: Case
    optimized: bool


def case_runs(pattern: str = "") -> list[CaseRun]:
    """Return every run of the ops whose name contains the pattern (`aten::trunc`, `aten.trunc`)."""
    return [
        CaseRun(name, entry.target, number, case, optimized)
        for entry in BUILTIN
        if callable(entry.target) and any(pattern in n for n in _names(entry.target))
        for name in (key(entry.target),)
        for number, case in enumerate(getattr(entry, "cases", ()))
        if not case.void
        for optimized in (False, True)
    ]


def _names(target: Any) -> tuple[str, str]:
    """Return the name in the registry, and the name in errors and lists."""
    return key(target), target_name(target)


def check_ops(pattern: str = "") -> Iterator[CaseResult]:
    """Run every case of the ops whose name contains the pattern, in one child process."""
    runner: Isolated | None = None
    try:
        for run in case_runs(pattern):
            problem, runner = _run_case(run.target, run.case, run.optimized, runner)
            yield CaseResult(run.op, run.number, run.optimized, not problem, problem)
    finally:
        if runner is not None:
            runner.close()


def _run_case(
    target: Any, case: Case, optimized: bool, runner: Isolated | None
) -> tuple[str, Isolated | None]:
    """Return the problem, empty if there is none, and the child process for the next case."""
    model = _CaseModel(target, case)
    try:
        with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
            path = Path(folder) / "case.mlirbc"
            names = _convert(model, path, exact=case.exact)
            if runner is None:
                runner = Isolated(ProgramFile(bytecode=path), optimize=optimized)
            else:
                runner.load(ProgramFile(bytecode=path), optimize=optimized)
            feeds = zip(names, model.feeds, strict=True)
            raw, _ = runner.call({n: array(v) for n, v in feeds}, {})
        got = [tensor(raw[name]) for name in runner.ports.outputs]
        return _compare_results(got, model, case), runner
    except (ConversionError, NativeError) as error:
        return str(error), runner


def _convert(model: _CaseModel, path: Path, *, exact: bool) -> list[str]:
    """Write the converted case to the path and return the names of its inputs."""
    converter = TorchConverter(exact=exact)
    exported = export(model, model.feeds, None, None)
    program = prepare(exported, rules=capture_rules(converter)).program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowingWarning)
        converted = converter.add_exported_program(program).to_coreai()
    write_module(converted, path)
    return [s.arg.name for s in program.graph_signature.input_specs if s.target is None]


def _compare_results(got: list[torch.Tensor], model: _CaseModel, case: Case) -> str:
    """Compare by the table of dtypes, then by the error analysis of the op."""
    want, allowed = model.outputs(), limits()
    if case.tolerance is not None:
        allowed = dict.fromkeys(allowed, max(case.tolerance))
    pairs = enumerate(zip(got, want, strict=True))
    errors = [compare(f"result {i}", g, w, allowed) for i, (g, w) in pairs]
    if case.tolerance is None and all(error.ok for error in errors):
        errors = _compare_analyzed(got, want, model)
    return "; ".join(str(error) for error in errors if not error.ok)


def _compare_analyzed(
    got: list[torch.Tensor], want: list[torch.Tensor], model: _CaseModel
) -> list[OutputError]:
    """Compare within the limits of the error analysis; return none if it cannot run the op."""
    try:
        return OneOp(*model.call(*model.feeds)).compare(got, want)
    except (TypeError, RuntimeError, ValueError):  # an op that runs graphs
        return []


class _CaseModel(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Call one op with the arguments of a case; the constants of the case are buffers."""

    def __init__(self, target: Any, case: Case) -> None:
        super().__init__()
        self._target = target
        self.feeds: list[torch.Tensor] = []
        self._constants = 0
        self._args = [self._to_reference(a) for a in case.args]
        self._kwargs = {k: self._to_reference(v) for k, v in case.kwargs.items()}

    def _to_reference(self, argument: Any) -> Any:
        """Replace the tensors of an argument by references to buffers and inputs."""
        if isinstance(argument, list):
            return [self._to_reference(element) for element in argument]
        if not isinstance(argument, T):
            return argument
        value = argument.make(len(self.feeds) + self._constants)
        if argument.constant:
            self.register_buffer(f"constant_{self._constants}", value)
            self._constants += 1
            return _Buffer(f"constant_{self._constants - 1}")
        self.feeds.append(value)
        return _Input(len(self.feeds) - 1)

    def forward(self, *inputs: torch.Tensor) -> Any:
        target, args, kwargs = self.call(*inputs)
        result = target(*args, **kwargs)
        return result + 0 if isinstance(result, int | torch.SymInt) else result

    def call(self, *inputs: torch.Tensor) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return the op and its arguments."""

        def resolve(argument: Any) -> Any:
            if isinstance(argument, list):
                return [resolve(element) for element in argument]
            if isinstance(argument, _Buffer):
                return getattr(self, argument.name)
            return inputs[argument.index] if isinstance(argument, _Input) else argument

        kwargs = {k: resolve(v) for k, v in self._kwargs.items()}
        return self._target, [resolve(a) for a in self._args], kwargs

    def outputs(self) -> list[torch.Tensor]:
        """Return the results of torch."""
        result = self(*self.feeds)
        results: Sequence[Any] = result if isinstance(result, list | tuple) else [result]
        return [torch.as_tensor(r) for r in results if r is not None]


@dataclass(frozen=True)
class _Buffer:
    """Refer to a buffer of the model."""

    name: str


@dataclass(frozen=True)
class _Input:
    """Refer to an input of the model."""

    index: int
