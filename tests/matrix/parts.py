"""The parts of the test suite that run with every version of torch, as tasks of a fleet run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .environment import ROOT

# Ten models of different families; the first five are the quick set.
MODELS = (
    "lstm",
    "gpt2",
    "distilbert",
    "mistral",
    "mamba",
    "gru",
    "opt",
    "albert",
    "roberta",
    "mixtral",
)


@dataclass(frozen=True)
class Part:
    """A selection of tests."""

    name: str
    arguments: tuple[str, ...]
    quick: bool = True
    full: bool = True


def models(count: int) -> tuple[str, ...]:
    """Return the arguments that select the first `count` models."""
    return tuple(f"tests/models/test_zoo.py::test_fast_model[{name}]" for name in MODELS[:count])


# Importing each of 500 modules first takes two minutes; the op cases import all lowerings.
IMPORTS = ("tests/unit/test_imports.py", "tests/unit/test_torch_compat.py")
IMPORTS += ("-k", "not every_module_can_be_imported_first")
PARTS = (
    # The unit tests contain these tests, and the ten models contain the five.
    Part("imports", IMPORTS, full=False),
    Part("seed documents", ("tests/compat/test_seeds.py",)),
    Part("op cases, static", ("tests/ops/test_cases.py", "-k", "static or void")),
    Part("five models", models(5), full=False),
    Part("ten models", models(10), quick=False),
    # The decoder has grouped heads, which other forms of export could not have for any length.
    Part("bundles", ("tests/llm/test_host_loading.py", "tests/llm/test_bundle_export.py")),
    Part("unit tests", ("tests/unit",), quick=False),
    Part("program tests", ("tests/program",), quick=False),
)


@dataclass(frozen=True)
class Result:
    """The outcome of one part with one environment."""

    part: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return the result as stored."""
        return asdict(self)


def run_part(task: Any) -> dict[str, Any]:
    """Run one part with the environment of this process; return the columns of its row."""
    result = _run(task.model, task.config["arguments"])
    first = result.failures[0] if result.failures else ""
    return {
        "verdict": "fail" if result.failed else "pass",
        "cause": f"{result.failed} failed" if result.failed else "",
        "message": first,
        "result": result.as_json(),
    }


def result_of(row: Mapping[str, Any]) -> Result:
    """Return the result of a row; a child that ended early counts as one failure."""
    details = json.loads(row["details"] or "{}")
    if "result" in details:
        given = details["result"]
        return Result(**{**given, "failures": tuple(given["failures"])})
    why = f"{row['verdict']}: {row['cause']}: {row['message']}"
    return Result(row["model"], 0, 1, 0, row["seconds"] or 0.0, (why,))


def _run(name: str, arguments: list[str]) -> Result:
    """Run pytest and read its summary."""
    command = [
        *(sys.executable, "-m", "pytest", "-n", str(os.cpu_count() or 1)),
        *("--dist", "loadgroup", "-p", "no:cacheprovider", "-m", "not slow", "-rfE", "--tb=line"),
        *arguments,
    ]
    started = time.monotonic()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COREAI_TORCH_ANALYZE_CASES": "0"}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    counts = {
        word: int(number)
        for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", _last(done.stdout))
    }
    failures = tuple(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE))
    errors = counts.get("error", 0) + counts.get("errors", 0)
    if done.returncode not in (0, 1) and not failures:  # pytest itself failed
        failures, errors = ((done.stdout + done.stderr)[-2000:],), errors + 1
    return Result(
        name,
        counts.get("passed", 0),
        counts.get("failed", 0) + errors,
        counts.get("skipped", 0),
        round(time.monotonic() - started, 1),
        failures,
    )


def _last(output: str) -> str:
    """Return the last line: the output of a failed test may contain another summary."""
    return next(reversed(output.strip().splitlines()), "")


def dumps(results: object) -> str:
    """Return results as stored in a file."""
    return json.dumps(results, indent=1, sort_keys=True) + "\n"
