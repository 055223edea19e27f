"""The steps of a task; they run in the child process."""

from __future__ import annotations

import errno
import hashlib
import importlib
import inspect
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__, progress
from ..errors import PlanError, SaveError
from ..stopwatch import Stopwatch
from .columns import ERROR, FAIL, LOST, PASS, VERDICTS
from .content import code_digest, library_version
from .task import Task

Report = Callable[[dict[str, Any]], None]
_STAGES = {  # the step that a stage of `convert` belongs to
    "exporting": "export_s",
    "decomposing": "export_s",
    "verifying": "verify_s",
}


@dataclass
class Work:
    """The state of a task: what its steps made and measured so far."""

    task: Task
    load: Callable[[Task], Any]  # returns a model or an exported program with example inputs
    report: Report
    measured: dict[str, Any] = field(default_factory=dict)
    model: Any = None
    asset: Path | None = None

    def run(self) -> dict[str, Any]:
        """Run the steps; an exception becomes a result with its step and code."""
        self.measured.update(_versions())
        self._note()
        try:
            with progress.listening(self._on_stage):
                verdict = self._run_steps()
        except Exception as error:
            return {**self.measured, **failure(error)}
        return {**self.measured, **verdict, "step": ""}

    def _run_steps(self) -> dict[str, Any]:
        if self.task.code != code_digest():
            raise RuntimeError("the worker has another version of coreai_torch than the client")
        if self.task.call:
            return self._call()
        with self._step("load"):
            self.model = self.load(self.task)
            self.measured["parameters"] = _parameters(self.model.model_or_exported)
        verdict = {"verdict": PASS}
        for name in ("compress", "export", "convert", "lint", "bench"):
            if self._wanted(name):
                with self._step(name):
                    verdict.update(getattr(self, f"_{name}")(self.task.steps.get(name, {})) or {})
        return verdict

    def _wanted(self, name: str) -> bool:
        steps = self.task.steps
        if name == "compress":
            return self.task.scheme != "none"
        if name == "convert":
            return bool({"convert", "verify", "lint", "bench"} & set(steps))
        if name == "export":  # `convert` exports too
            return "export" in steps and not self._wanted("convert")
        return name in steps

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.measured["step"] = name
        self._note()
        watch = Stopwatch()
        yield
        spent = watch.seconds
        if name == "convert":  # its stages that belong to other steps were counted there
            spent -= self.measured.get("export_s", 0.0) + self.measured.get("verify_s", 0.0)
        self.measured[f"{name}_s"] = round(spent, 4)
        self._note()

    def _note(self) -> None:
        """Send what is known, for the row of a child that crashes later."""
        self.report(self.measured)

    def _on_stage(self, stage: str, seconds: float | None) -> None:
        if seconds is None:
            self.measured["step"] = "verify" if stage == "verifying" else self.measured["step"]
            self._note()
        elif stage in _STAGES:
            column = _STAGES[stage]
            self.measured[column] = round(self.measured.get(column, 0.0) + seconds, 4)
            self.measured["step"] = "convert"

    def _call(self) -> dict[str, Any]:
        """Run the function of the plan; it returns columns and other values.

        A second parameter is a function that reports values for the row of a child that crashes.
        """
        module, _, name = self.task.call.rpartition(":")
        sys.path.insert(0, self.task.folder)
        with self._step("call"):
            function = getattr(importlib.import_module(module), name)
            reports = len(inspect.signature(function).parameters) > 1
            result = function(self.task, self.report) if reports else function(self.task)
            return {"verdict": PASS, **self._checked(result)}

    def _checked(self, result: Any) -> dict[str, Any]:
        """Return the result of the plan's function as data that JSON can store."""
        if not isinstance(result, Mapping):
            kind = type(result).__name__
            raise PlanError(f"{self.task.call} returned {kind}\n  try   return a dictionary")
        if result.get("verdict", PASS) not in VERDICTS:
            raise PlanError(
                f"{self.task.call} returned the verdict {result['verdict']!r}\n"
                f"  try   return one of {', '.join(VERDICTS)}"
            )
        found: dict[str, Any] = json.loads(json.dumps(dict(result), default=str))
        return found

    def _compress(self, options: Mapping[str, Any]) -> None:
        from .. import compress

        report = compress(self.model.model_or_exported, self.task.scheme, **options)
        self.measured["weight_bytes"] = report.bytes

    def _export(self, options: Mapping[str, Any]) -> None:
        from ..capture.prepare import prepare
        from ..converter import TorchConverter, capture_rules

        model = self.model
        converter = TorchConverter().register_custom_kernels(model.kernels)
        given = (model.model_or_exported, model.args, model.kwargs, model.dynamic_shapes)
        program = prepare(*given, rules=capture_rules(converter)).program
        self.measured["ops"] = sum(n.op == "call_function" for n in program.graph.nodes)

    def _convert(self, options: Mapping[str, Any]) -> None:
        from .. import TorchConverter, convert
        from ..asset.summary import summarize

        task, model = self.task, self.model
        recognize = bool(options.get("recognize", False))
        converter = TorchConverter(recognize=recognize).register_custom_kernels(model.kernels)
        verify = task.steps["verify"].get("mode", "quick") if "verify" in task.steps else False
        self.asset = _asset_path(task)
        chosen: dict[str, Any] = {}
        if task.precision != "float32":
            chosen.update(precision=task.precision, keep=options.get("keep", "auto"))
        if task.target != "none":
            chosen["target"] = task.target
        program = convert(
            model.model_or_exported,
            model.args,
            model.kwargs,
            dynamic_shapes=model.dynamic_shapes,
            verify=verify,
            output=self.asset,
            converter=converter,
            **chosen,
        )
        contents = summarize(self.asset)
        self.measured["ops"] = sum(function.ops for function in contents.functions)
        self.measured["file_bytes"] = contents.file_bytes
        self.measured["file_hash"] = hash_of(self.asset)
        verdict = getattr(program, "verdict", None)
        if verdict is not None:
            self.measured["max_error"] = worst_error(verdict)

    def _lint(self, options: Mapping[str, Any]) -> dict[str, Any]:
        from ..targets.lint import UNITS, lint

        assert self.asset is not None
        found = lint(self.asset, target=options.get("units", UNITS), os=options.get("os"))
        counted = {
            f"lint_{kind}s": sum(finding.severity == kind for finding in found)
            for kind in ("error", "warning")
        }
        self.measured.update(counted)
        fatal = ("error", "warning") if options.get("strict") else ("error",)
        bad = [finding for finding in found if finding.severity in fatal]
        if not bad:
            return {}
        return {
            "verdict": FAIL,
            "cause": f"lint: {bad[0].problem}",
            "error_code": bad[0].code,
            "message": "\n".join(f"{f.problem} ({f.count} times), {f.place}" for f in bad),
        }

    def _bench(self, options: Mapping[str, Any]) -> None:
        from ..verification.timing import time_calls

        assert self.asset is not None
        seconds = time_calls(self.asset, **{"runs": 20, **options}).seconds
        self.measured["call_ms"] = round(1e3 * sorted(seconds)[len(seconds) // 2], 4)


def failure(error: BaseException) -> dict[str, Any]:
    """Return the columns of an exception: verdict, cause, code, message and first wrong op."""
    code = getattr(error, "code", None)
    lines = str(error).splitlines() or [""]
    found: dict[str, Any] = {
        "verdict": ERROR,
        "cause": f"{type(error).__name__}: {lines[0]}"[:200],
        "error_code": code if isinstance(code, str) else "",
        "message": (str(error) if code else described(error))[:4000],
    }
    if _is_disk_full(error):
        return {**found, "verdict": LOST, "cause": "the disk is full"}
    verdict = getattr(error, "verdict", None)
    if verdict is not None:
        found.update(verdict=FAIL, cause="the numbers differ", max_error=worst_error(verdict))
        if verdict.divergence is not None:
            op = verdict.divergence.op
            found.update(first_op=op, cause=f"the numbers differ, first at {op}")
    return found


def described(error: BaseException) -> str:
    """Return the message of a foreign exception with its place and its causes."""
    lines = [f"{type(error).__name__}: {error}"]
    if frames := traceback.extract_tb(error.__traceback__):
        lines.append(f'  at    File "{frames[-1].filename}", line {frames[-1].lineno}')
    cause = error.__cause__
    while cause is not None:
        lines.append(f"  cause {type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return "\n".join(lines)


def _is_disk_full(error: BaseException | None) -> bool:
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    while error is not None:
        if isinstance(error, SaveError) or (isinstance(error, OSError) and error.errno in full):
            return True
        if "No space left on device" in str(error):  # of native code
            return True
        error = error.__cause__ or error.__context__
    return False


def worst_error(verdict: Any) -> float | None:
    """Return the largest relative error of a verification."""
    errors = [float(error.max_rel) for error in verdict.worst().values()]
    return max(errors) if errors else None


def _versions() -> dict[str, str]:
    return {
        "coreai_torch": __version__,
        "coreai_core": library_version("coreai-core"),
        "torch": library_version("torch"),
        "python": platform.python_version(),
    }


def _parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _asset_path(task: Task) -> Path:
    if task.keep:
        folder = Path(task.keep)
        folder.mkdir(parents=True, exist_ok=True)
        plain = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in task.id)
        return folder / f"{plain}-{task.key[:8]}.aimodel"
    return Path(os.environ["TMPDIR"]) / "model.aimodel"


def hash_of(asset: Path) -> str:
    """Return the digest of all files of an asset."""
    digest = hashlib.sha256()
    for file in sorted(path for path in asset.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(asset)).encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:32]


def run_steps(data: Mapping[str, Any], load: Callable[[Task], Any], report: Report) -> Any:
    """Run the steps of a task, given as plain data."""
    task = Task.from_dict(data)
    if Path(task.folder).is_dir():
        os.chdir(task.folder)
    return Work(task, load, report).run()
