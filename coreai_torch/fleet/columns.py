"""The columns of the results: one row for each task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PASS, FAIL, ERROR, CRASH, TIMEOUT, MEMORY, LOST = VERDICTS = (
    "pass",  # all steps succeeded
    "fail",  # the numbers differ, or lint found an error
    "error",  # a step raised an error
    "crash",  # native code crashed
    "timeout",  # the time limit was reached
    "memory",  # the memory limit was reached, or the system ran out of memory
    "lost",  # the worker was lost or its disk full; the next run tries again
)

COLUMNS: dict[str, type] = {
    "id": str,
    "key": str,
    "model": str,
    "source": str,
    "sizes": str,
    "precision": str,
    "scheme": str,
    "target": str,
    "environment": str,
    "seed": int,
    "steps": str,
    "verdict": str,
    "step": str,
    "cause": str,
    "error_code": str,
    "message": str,
    "first_op": str,
    "max_error": float,
    "parameters": int,
    "ops": int,
    "lint_errors": int,
    "lint_warnings": int,
    "load_s": float,
    "export_s": float,
    "compress_s": float,
    "convert_s": float,
    "verify_s": float,
    "lint_s": float,
    "bench_s": float,
    "seconds": float,
    "call_ms": float,
    "peak_mb": float,
    "file_bytes": int,
    "file_hash": str,
    "weight_bytes": int,
    "coreai_torch": str,
    "coreai_core": str,
    "torch": str,
    "python": str,
    "code": str,
    "host": str,
    "worker": str,
    "attempt": int,
    "started": str,
    "details": str,
}


def row(task: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a task; values without a column are stored as JSON in `details`."""
    described = {
        **{name: task[name] for name in ("id", "key", "model", "source", "precision")},
        **{name: task[name] for name in ("scheme", "target", "environment", "seed", "code")},
        "sizes": json.dumps(dict(task["sizes"]), sort_keys=True),
        "steps": task["call"] or ",".join(task["steps"]),
    }
    named = {name: described[name] for name in ("id", "key", "code")}  # of no result
    given = {**described, **result, **named}
    found: dict[str, Any] = {}
    other = {name: value for name, value in given.items() if name not in COLUMNS}
    for name, kind in COLUMNS.items():
        try:
            found[name] = _converted(given.get(name), kind)
        except (TypeError, ValueError, OverflowError):
            found[name] = None
            other[name] = given[name]
    if other:
        found["details"] = _converted(json.dumps(other, default=str), str)
    return found


def _converted(value: Any, kind: type) -> Any:
    if value is None:
        return "" if kind is str else None
    if kind is str:  # Parquet stores neither half of a surrogate pair
        return str(value).encode("utf-8", "replace").decode()
    if kind is int and not -(1 << 63) <= int(value) < 1 << 63:
        raise OverflowError
    return kind(value)
